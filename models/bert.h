// BERT, with Hugging Face's parameter names (BertForSequenceClassification, BertForMaskedLM).
// Ref: Devlin et al. 2019; the small sizes: Turc et al. 2019.
#pragma once
#include <string>
#include <vector>

#include "models/transformer_layers.h"

namespace frugal::models {

enum class BertHead : uint8_t {
  classification,  // the first token, pooled -> [N, num_classes]
  masked_lm,       // every token -> [N, T, vocab_size]; the decoder is the word embedding
};

struct BertOptions {
  int64_t layers = 12;
  int64_t hidden = 768;
  int64_t heads = 12;
  int64_t intermediate = 0;  // 0: 4 hidden
  int64_t vocab_size = 30522;
  int64_t max_positions = 512;
  int64_t types = 2;
  BertHead head = BertHead::classification;
  int64_t num_classes = 2;
  double dropout = 0.1;  // of embeddings, of both branches' outputs and of the pooled token
  double attention_dropout = 0.1;
  double inner_dropout = 0;  // after gelu, as torch.nn.TransformerEncoderLayer has it
  double eps = 1e-12;
  int64_t padding_id = 0;  // whose embedding starts at 0 and stays; -1: none
  bool bare = false;       // words alone: no positions, types, norm and dropout before the layers,
                           // and no pooler behind them
};

// The options of "bert_tiny", "bert_mini", "bert_small", "bert_medium", "bert_base", "bert_large",
// and of "encoder": torch.nn.TransformerEncoder on word embeddings, 4 layers of 256, bare.
// Errors: unknown name, listing the known ones.
BertOptions bert_options(const std::string& name);

// Input: token ids [N, T] i64. context.extra("attention_mask") [N, T] i64, 0 where a token is
// padding, and context.extra("token_type_ids") [N, T] i64; without them nothing is padding and all
// types are 0.
// Errors: ids not [N, T] i64, T beyond max_positions, extras of another shape or dtype, an id
// outside its table; heads that do not divide the width.
class Bert : public HeadedModule {
 public:
  Bert(Init& init, const BertOptions& options);
  Head before_output(Variable ids, Context& context) override;

 private:
  class Layer;
  Variable embed(const Tensor& ids, Context& context);
  BertOptions options_;
  Variable words_, positions_, types_;
  Tensor position_ids_;
  std::shared_ptr<LayerNorm> norm_;
  std::vector<std::shared_ptr<Layer>> layers_;
  std::shared_ptr<Dense> pooler_, classifier_;  // classification
  std::shared_ptr<Dense> transform_;            // masked_lm
  std::shared_ptr<LayerNorm> transform_norm_;
  Variable decoder_bias_;
};

}  // namespace frugal::models
