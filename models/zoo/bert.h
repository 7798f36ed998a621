// BERT, RoBERTa and DistilBERT, with Hugging Face's parameter names (BertForSequenceClassification,
// BertForMaskedLM and those of the others).
// Ref: Devlin et al. 2019; the small sizes: Turc et al. 2019; Liu et al. 2019 (RoBERTa); Sanh et
// al. 2019 (DistilBERT).
#pragma once
#include <string>
#include <vector>

#include "models/transformer_layers.h"
#include "models/zoo/keys.h"

namespace frugal::models {

// What the families have beside BERT.
//   roberta:    positions count from 2, since rows 0 and 1 of their table belong to padding; one
//               type, which all tokens have; the classifier has two layers and no pooler before it
//   distilbert: no types, no dropout behind attention; relu instead of tanh in the pooler, which is
//               called pre_classifier, and a dropout of its own behind it
enum class BertFamily : uint8_t { bert, roberta, distilbert };

enum class BertHead : uint8_t {
  classification,  // the first token after the pooler -> [N, num_classes]
  masked_lm,       // every token -> [N, T, vocab_size]; the weight of the head is the word
                   // embedding
};

struct BertOptions {
  int64_t layers = 12;
  int64_t hidden = 768;
  int64_t heads = 12;
  int64_t intermediate = 0;  // 0: 4 times hidden
  int64_t vocab_size = 30522;
  int64_t max_positions = 512;  // rows of the table of positions
  int64_t types = 2;            // 0: none
  BertHead head = BertHead::classification;
  int64_t num_classes = 2;
  double dropout = 0.1;        // after the embeddings, the two branches of a layer, and the pooler
  double pooler_dropout = -1;  // after the pooler; -1: as dropout
  double attention_dropout = 0.1;
  double inner_dropout = 0;  // after gelu, as in torch.nn.TransformerEncoderLayer
  double eps = 1e-12;
  int64_t padding_id = 0;  // the embedding of this token starts at 0 and stays 0; -1: no such token
  BertFamily family = BertFamily::bert;
  bool bare = false;  // word embeddings only: no positions, types, norm or dropout before the
                      // layers, and no pooler after them

  int64_t first_position() const { return family == BertFamily::roberta ? 2 : 0; }
  int64_t longest() const { return max_positions - first_position(); }  // tokens of a sequence

  static const Published<BertOptions>& published();
  static std::vector<Option<BertOptions>> list() {
    return {{keys::kLayers, &BertOptions::layers},
            {keys::kWidth, &BertOptions::hidden},
            {keys::kHeads, &BertOptions::heads},
            {keys::kFeedForward, &BertOptions::intermediate},
            {keys::kDropout, &BertOptions::dropout},
            {keys::kAttentionDropout, &BertOptions::attention_dropout},
            {keys::kMaxPositions, &BertOptions::max_positions},
            {keys::kVocabSize, &BertOptions::vocab_size},
            {keys::kNumClasses, &BertOptions::num_classes},
            {{"head", range::choice("classification, masked_lm"),
              "One output of a text, or one of each token.", Key::data},
             &BertOptions::head}};
  }
};

// The options of "bert_tiny", "bert_mini", "bert_small", "bert_medium", "bert_base", "bert_large",
// "roberta_base", "roberta_large", "distilbert_base" and "encoder". "encoder" is
// torch.nn.TransformerEncoder on word embeddings: 4 layers of width 256, with `bare`. Errors: an
// unknown name; the message lists the known ones.
BertOptions bert_options(const std::string& name);

// Input: token ids [N, T] i64. context.extra("attention_mask") [N, T] i64 is 0 where a token is
// padding; without it no token is padding. context.extra("token_type_ids") [N, T] i64 holds the
// types; without it, and with types of 0 or 1, all types are 0. Padding lies behind the tokens.
// Errors: ids that are not [N, T] i64, T beyond longest(), extras of another shape or dtype, an id
// outside its table; heads that do not divide the width; max_positions without a place for a token.
class Bert : public HeadedModule {
 public:
  Bert(Init& init, const BertOptions& options);
  Head before_output(Variable ids, Context& context) override;
  std::string head_prefix() override;

 private:
  class Layer;
  Variable pooled(Variable x, Context& context);
  Variable embed(const Tensor& ids, Context& context);
  BertOptions options_;
  Variable words_, positions_, types_;
  Tensor position_ids_;
  std::shared_ptr<LayerNorm> norm_;
  std::vector<std::shared_ptr<Layer>> layers_;
  std::shared_ptr<Dense> pooler_, classifier_;  // only for classification
  std::shared_ptr<Module> head_;                // roberta: what holds these two
  std::shared_ptr<Dense> transform_;            // only for masked_lm
  std::shared_ptr<LayerNorm> transform_norm_;
  Variable decoder_bias_;
};

}  // namespace frugal::models
