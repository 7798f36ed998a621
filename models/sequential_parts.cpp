#include "models/sequential_parts.h"

#include <cmath>

#include "autograd/functions.h"
#include "models/dense.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/reduce.h"
#include "ops/dense/shape.h"

namespace frugal::models {
namespace {

constexpr double kDeviation = 0.02;

void check_tokens(const char* layer, const Variable& x) {
  FRUGAL_CHECK(x.value().dim() == 3, "[{}] expected tokens [N, T, C], got {}", layer,
               describe(x.value()));
}

void check_image(const char* layer, const Variable& x) {
  FRUGAL_CHECK(x.value().dim() == 4, "[{}] expected images [N, H, W, C], got {}", layer,
               describe(x.value()));
}

Variable as_tokens(const Variable& x) {
  return reshape(x, {x.size(0), x.size(1) * x.size(2), x.size(3)});
}

// The mask of the batch, if it is one of the tokens of x.
Tensor mask_of(const Variable& x, const Context& context) {
  const Tensor mask = context.extra("attention_mask");
  const bool fits = mask.defined() && mask.shape() == Shape{x.size(0), x.size(1)};
  return fits ? mask : Tensor();
}

// What each token counts in the mean over the tokens that mask [N, T] shows: [N, T, 1]. Made by
// functions that a trace sees, so that it can be exported.
Tensor shares(const Tensor& mask, DType dtype) {
  const CategoryScope scope(Category::workspace);
  const Variable seen = cast(Variable(mask), dtype == DType::f64 ? dtype : DType::f32);
  const Variable share = div(seen, clamp(sum(seen, {1}, true), 1, 1e9));
  return reshape(cast(share, dtype), {mask.size(0), mask.size(1), 1}).value();
}

}  // namespace

TokenEmbedding::TokenEmbedding(Init& init, int64_t ids, int64_t channels, int64_t padding_idx)
    : padding_idx_(padding_idx),
      weight_(register_parameter("weight", normal(init, {ids, channels}, kDeviation))) {
  FRUGAL_CHECK(padding_idx >= -1 && padding_idx < ids,
               "[embedding] expected a padding_idx below {}, or -1, got {}", ids, padding_idx);
  if (padding_idx >= 0 && weight_.value().raw() != nullptr)
    ops::fill(weight_.value().select(0, padding_idx), 0);
}

Variable TokenEmbedding::forward(Variable x, Context& context) {
  check_ids("embedding", x.value(), INT64_MAX);
  checked_extra("embedding", context, "attention_mask", x.value());
  FRUGAL_CHECK(!context.extra("position_ids").defined(),
               "[embedding] expected rows of one sample each, got position_ids of several");
  return as_activation(embedding(x.value(), weight_, padding_idx_), context);
}

PositionEmbedding::PositionEmbedding(Init& init, int64_t longest, int64_t channels)
    : weight_(register_parameter("weight", normal(init, {longest, channels}, kDeviation))) {}

Variable PositionEmbedding::forward(Variable x, Context& context) {
  check_tokens("position_embedding", x);
  const int64_t tokens = x.size(1), longest = weight_.size(0);
  FRUGAL_CHECK(tokens <= longest, "[position_embedding] expected at most {} tokens, got {}",
               longest, tokens);
  // An evaluation runs the same ops for all numbers of tokens, so that it can be exported.
  const bool whole = tokens == longest && context.training;
  const Variable rows = whole ? weight_ : slice(weight_, 0, 0, tokens);
  return add(x, cast(rows, x.dtype()));
}

ClassToken::ClassToken(Init& init, int64_t channels)
    : weight_(register_parameter("weight", normal(init, {1, 1, channels}, kDeviation))) {}

Variable ClassToken::forward(Variable x, Context&) {
  check_tokens("class_token", x);
  const Variable token = cast(pad(weight_, {{0, 0}, {0, x.size(1)}, {0, 0}}), x.dtype());
  return add(pad(x, {{0, 0}, {1, 0}, {0, 0}}), token);
}

PatchEmbedding::PatchEmbedding(Init& init, int64_t in, int64_t out, Pair patch) {
  options_.stride = patch;
  const double bound = 1 / std::sqrt(static_cast<double>(patch[0] * patch[1] * in));
  weight_ = register_parameter("weight", uniform(init, {out, patch[0], patch[1], in}, bound),
                               Layout::conv_weight);
  bias_ = register_parameter("bias", uniform(init, {out}, bound));
}

Variable PatchEmbedding::forward(Variable x, Context&) {
  check_image("patch_embedding", x);
  return as_tokens(conv2d(x, weight_, bias_, options_));
}

Variable Tokens::forward(Variable x, Context&) {
  check_image("tokens", x);
  return as_tokens(x);
}

Variable SwapTokens::forward(Variable x, Context&) {
  check_tokens("transpose", x);
  return transpose(x, 1, 2);
}

Variable MeanPool::forward(Variable x, Context& context) {
  if (x.value().dim() == 4) return global_avg_pool2d(x);
  check_tokens("mean_pool", x);
  const Tensor mask = mask_of(x, context);
  if (!mask.defined()) return mean(x, {1});
  // A constant, so that lossy policies leave it whole: a hidden token must get no gradient at all.
  return sum(mul(x, Variable::constant(shares(mask, x.dtype()))), {1});
}

Variable FirstToken::forward(Variable x, Context&) {
  check_tokens("first_token", x);
  return reshape(first_token(x), {x.size(0), x.size(2)});
}

MultiheadAttention::MultiheadAttention(Init& init, int64_t channels,
                                       const SelfAttentionOptions& options, bool bias)
    : options_(options) {
  check_heads("attention", channels, options.heads);
  const double glorot = std::sqrt(6.0 / static_cast<double>(4 * channels));
  weight_ = register_parameter("in_proj_weight", uniform(init, {3 * channels, channels}, glorot));
  if (bias) bias_ = register_parameter("in_proj_bias", constant(init, {3 * channels}, 0));
  const double bound = 1 / std::sqrt(static_cast<double>(channels));
  Tensor weight = uniform(init, {channels, channels}, bound);
  projection_ = register_module(
      "out_proj",
      std::make_shared<Dense>(std::move(weight), bias ? constant(init, {channels}, 0) : Tensor()));
}

Variable MultiheadAttention::forward(Variable x, Context& context) {
  check_tokens("attention", x);
  const Tensor mask = mask_of(x, context);
  Variable y = linear(x, weight_, bias_);
  x = {};
  y = self_attention(y, options_, mask, {}, context);
  return projection_->forward(std::move(y), context);
}

SequentialClassifier::SequentialClassifier(const std::vector<std::shared_ptr<Module>>& body,
                                           std::shared_ptr<Linear> head,
                                           std::vector<Sequential::Block> blocks)
    : head_(std::move(head)) {
  for (const std::shared_ptr<Module>& module : body) {
    register_module(std::to_string(body_.size()), module);
    body_.append(module);
  }
  body_.set_blocks(std::move(blocks));
  register_module(std::to_string(body.size()), head_);
}

HeadedModule::Head SequentialClassifier::before_output(Variable input, Context& context) {
  return {body_.forward(std::move(input), context), head_->weight(), head_->bias()};
}

SequentialLanguageModel::SequentialLanguageModel(const std::vector<std::shared_ptr<Module>>& body,
                                                 std::shared_ptr<Linear> head,
                                                 std::vector<Sequential::Block> blocks,
                                                 int64_t context_length)
    : head_(std::move(head)), context_length_(context_length) {
  for (const std::shared_ptr<Module>& module : body) {
    register_module(std::to_string(body_.size()), module);
    body_.append(module);
  }
  body_.set_blocks(std::move(blocks));
  register_module(std::to_string(body.size()), head_);
}

Variable SequentialLanguageModel::hidden(const Tensor& ids, Context& context) {
  check_ids("sequential", ids, context_length_);
  return body_.forward(Variable(ids), context);
}

HeadedModule::Head SequentialLanguageModel::head(Variable hidden) {
  return {std::move(hidden), head_->weight(), head_->bias()};
}

}  // namespace frugal::models
