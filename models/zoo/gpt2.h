// GPT-2, with Hugging Face's parameter names (GPT2LMHeadModel). Ref: Radford et al. 2019.
#pragma once
#include <string>
#include <vector>

#include "models/embedding_table.h"
#include "models/generate.h"
#include "models/transformer_layers.h"
#include "models/zoo/keys.h"

namespace frugal::models {

struct Gpt2Options {
  int64_t layers = 12;
  int64_t hidden = 768;
  int64_t heads = 12;
  int64_t vocab_size = 50257;
  int64_t context_length = 1024;
  double dropout = 0.1;  // after the embeddings and the two branches of a layer
  double attention_dropout = 0.1;
  double eps = 1e-5;
  int64_t inner = 0;  // width between the two linear maps of the second branch; 0: 4 times hidden
  bool tied = true;   // does the head share the token embedding?

  static const Published<Gpt2Options>& published();
  static std::vector<Option<Gpt2Options>> list() {
    return {{keys::kLayers, &Gpt2Options::layers},
            {keys::kWidth, &Gpt2Options::hidden},
            {keys::kHeads, &Gpt2Options::heads},
            {keys::kFeedForward, &Gpt2Options::inner},
            {keys::kDropout, &Gpt2Options::dropout},
            {keys::kAttentionDropout, &Gpt2Options::attention_dropout},
            {keys::kMaxPositions, &Gpt2Options::context_length},
            {keys::kVocabSize, &Gpt2Options::vocab_size},
            {keys::kTied, &Gpt2Options::tied}};
  }
};

// The options of "gpt2", "gpt2_medium", "gpt2_large", "gpt2_xl".
// Errors: an unknown name; the message lists the known ones.
Gpt2Options gpt2_options(const std::string& name);

// Input: token ids [N, T] i64. context.extra("attention_mask") [N, T] i64, if given, is 0 where a
// token is padding. context.extra("position_ids") [N, T] i64, if given, counts from 0 in each
// sample of a row, and samples do not see each other. The weight of the head is the token
// embedding if the options say `tied`. Errors: ids that are not [N, T] i64, T beyond
// context_length, an extra of another shape or dtype, both extras, an id outside the vocabulary;
// heads that do not divide the width.
class Gpt2 : public LanguageModel {
 public:
  Gpt2(Init& init, const Gpt2Options& options);
  Variable hidden(const Tensor& ids, Context& context) override;
  int64_t past_length() const override { return context_length(); }
  Variable continued(const Tensor& ids, Past& past, Context& context) override;
  Head head(Variable hidden) override;
  void untie_head() override;
  int64_t context_length() const override { return options_.context_length; }

 private:
  class Layer;
  Variable embedded(const Tensor& ids, const Tensor& at, Context& context) const;
  Gpt2Options options_;
  std::shared_ptr<EmbeddingTable> tokens_, positions_;
  Tensor position_ids_;
  std::vector<std::shared_ptr<Layer>> layers_;
  std::shared_ptr<LayerNorm> norm_;
  std::shared_ptr<Dense> output_;  // null: the head is the token embedding
};

}  // namespace frugal::models
