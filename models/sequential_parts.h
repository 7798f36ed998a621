// Layers for networks of tokens that are a list of layers (Sequential): between images
// [N, H, W, C], tokens [N, T, C] and rows [N, C]. Parameters and layouts are PyTorch's where
// PyTorch has such a layer.
#pragma once
#include "models/generate.h"
#include "models/layers.h"
#include "models/transformer_layers.h"

namespace frugal::models {

// Token ids [N, T] i64 -> [N, T, C]. Parameter: weight [ids, C], from N(0, 0.02^2). The row of
// padding_idx starts as 0 and gets no gradient; -1: there is none.
class TokenEmbedding : public Module {
 public:
  TokenEmbedding(Init& init, int64_t ids, int64_t channels, int64_t padding_idx = -1);
  Variable forward(Variable x, Context& context) override;

 private:
  int64_t padding_idx_;
  Variable weight_;
};

// [N, T, C] -> the same plus a learned row for each place. Parameter: weight [longest, C], from
// N(0, 0.02^2). Errors: more tokens than rows.
class PositionEmbedding : public Module {
 public:
  PositionEmbedding(Init& init, int64_t longest, int64_t channels);
  Variable forward(Variable x, Context& context) override;

 private:
  Variable weight_;
};

// [N, T, C] -> [N, T + 1, C]: a learned token in front. Parameter: weight [1, 1, C], from
// N(0, 0.02^2).
class ClassToken : public Module {
 public:
  ClassToken(Init& init, int64_t channels);
  Variable forward(Variable x, Context& context) override;

 private:
  Variable weight_;
};

// [N, H, W, in] -> [N, T, out]: a convolution whose patches lie side by side, then tokens row by
// row. Parameters: weight [out, height, width, in], bias [out].
class PatchEmbedding : public Module {
 public:
  PatchEmbedding(Init& init, int64_t in, int64_t out, Pair patch);
  Variable forward(Variable x, Context& context) override;

 private:
  Conv2dOptions options_;
  Variable weight_, bias_;
};

// [N, H, W, C] -> [N, H W, C]: the places of an image as tokens, row by row.
class Tokens : public Module {
 public:
  Variable forward(Variable x, Context& context) override;
};

// [N, T, C] -> [N, C, T].
class SwapTokens : public Module {
 public:
  Variable forward(Variable x, Context& context) override;
};

// [N, T, C] or [N, H, W, C] -> [N, C]: the mean over tokens or places. Tokens that the batch's
// attention_mask hides do not count.
class MeanPool : public Module {
 public:
  Variable forward(Variable x, Context& context) override;
};

// [N, T, C] -> [N, C].
class FirstToken : public Module {
 public:
  Variable forward(Variable x, Context& context) override;
};

// Self attention of tokens, [N, T, C] -> [N, T, C]. The batch's attention_mask hides padding.
// Parameters: in_proj_weight [3C, C], in_proj_bias [3C], out_proj.weight [C, C], out_proj.bias [C];
// no biases if told so. Errors: heads that do not divide the channels.
class MultiheadAttention : public Module {
 public:
  MultiheadAttention(Init& init, int64_t channels, const SelfAttentionOptions& options,
                     bool bias = true);
  Variable forward(Variable x, Context& context) override;

 private:
  SelfAttentionOptions options_;
  Variable weight_, bias_;
  std::shared_ptr<Dense> projection_;
};

// A list of layers that ends in a Linear, whose outputs a loss may take in parts (HeadedModule).
// Parameters are named by position, as those of a Sequential with the head as its last child.
class SequentialClassifier : public HeadedModule {
 public:
  SequentialClassifier(const std::vector<std::shared_ptr<Module>>& body,
                       std::shared_ptr<Linear> head, std::vector<Sequential::Block> blocks);
  Head before_output(Variable input, Context& context) override;

 private:
  Sequential body_;
  std::shared_ptr<Linear> head_;
};

// A list of layers over tokens that ends in a Linear. Each token has an output, which depends on
// this token and those before it: attention must be causal.
class SequentialLanguageModel : public LanguageModel {
 public:
  SequentialLanguageModel(const std::vector<std::shared_ptr<Module>>& body,
                          std::shared_ptr<Linear> head, std::vector<Sequential::Block> blocks,
                          int64_t context_length);
  Variable hidden(const Tensor& ids, Context& context) override;
  Head head(Variable hidden) override;
  int64_t context_length() const override { return context_length_; }

 private:
  Sequential body_;
  std::shared_ptr<Linear> head_;
  int64_t context_length_;
};

}  // namespace frugal::models
