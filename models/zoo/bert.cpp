#include "models/zoo/bert.h"

#include "autograd/functions.h"
#include "models/checkpointed.h"
#include "models/dense.h"
#include "ops/dense/copy.h"

namespace frugal::models {
namespace {

constexpr double kBertDeviation = 0.02;  // standard deviation of all initial weights

int64_t intermediate_of(const BertOptions& options) {
  return options.intermediate > 0 ? options.intermediate : 4 * options.hidden;
}

}  // namespace

// Each norm follows its branch: x = norm(x + attention(x)), x = norm(x + mlp(x)).
class Bert::Layer : public Module {
 public:
  Layer(Init& init, const BertOptions& options)
      : options_(options),
        query_(dense(init, "attention.self.query", options.hidden, options.hidden)),
        key_(dense(init, "attention.self.key", options.hidden, options.hidden)),
        value_(dense(init, "attention.self.value", options.hidden, options.hidden)),
        projection_(dense(init, "attention.output.dense", options.hidden, options.hidden)),
        norm1_(norm(init, "attention.output.LayerNorm")),
        up_(dense(init, "intermediate.dense", options.hidden, intermediate_of(options))),
        down_(dense(init, "output.dense", intermediate_of(options), options.hidden)),
        norm2_(norm(init, "output.LayerNorm")) {}

  Variable forward(Variable x, Context& context) override {
    return run(std::move(x), false, context);
  }
  Variable forward_first(Variable x, Context& context) {  // [N, T, H] -> [N, 1, H]
    return run(std::move(x), true, context);
  }

 private:
  Variable run(Variable x, bool first, Context& context) {
    const SelfAttentionOptions attention{options_.heads, options_.attention_dropout, false};
    const Variable k = key_->forward(x, context), v = value_->forward(x, context);
    if (first) x = first_token(x);
    Variable y = self_attention(query_->forward(x, context), k, v, attention,
                                context.extra("attention_mask"), context);
    y = projection_->forward(std::move(y), context);
    x = norm1_->forward(add(drop(y, options_.dropout, context), x), context);
    y = {};  // nobody saves it, so its memory is released here
    y = drop(dense_gelu(*up_, x, context), options_.inner_dropout, context);
    y = drop(down_->forward(std::move(y), context), options_.dropout, context);
    return norm2_->forward(add(y, x), context);
  }

  std::shared_ptr<Dense> dense(Init& init, const char* name, int64_t in, int64_t out) {
    return register_module(name, normal_dense(init, in, out, kBertDeviation));
  }
  std::shared_ptr<LayerNorm> norm(Init& init, const char* name) {
    return register_module(name, std::make_shared<LayerNorm>(init, options_.hidden, options_.eps));
  }

  BertOptions options_;
  std::shared_ptr<Dense> query_, key_, value_, projection_;
  std::shared_ptr<LayerNorm> norm1_;
  std::shared_ptr<Dense> up_, down_;
  std::shared_ptr<LayerNorm> norm2_;
};

const Published<BertOptions>& BertOptions::published() {
  static const Published<BertOptions> all = {
      {"bert_tiny", {2, 128, 2}},
      {"bert_mini", {4, 256, 4}},
      {"bert_small", {4, 512, 8}},
      {"bert_medium", {8, 512, 8}},
      {"bert_base", {12, 768, 12}},
      {"bert_large", {24, 1024, 16}},
      {"encoder",
       {.layers = 4,
        .hidden = 256,
        .heads = 4,
        .inner_dropout = 0.1,
        .eps = 1e-5,
        .padding_id = -1,
        .bare = true}},
  };
  return all;
}

BertOptions bert_options(const std::string& name) {
  return find_published(BertOptions::published(), "bert", name);
}

Bert::Bert(Init& init, const BertOptions& options) : options_(options) {
  check_heads("bert", options.hidden, options.heads);
  const int64_t width = options.hidden;
  const auto table = [&](const char* name, int64_t rows) {
    return register_parameter(std::string("bert.embeddings.") + name + "_embeddings.weight",
                              normal(init, {rows, width}, kBertDeviation));
  };
  words_ = table("word", options.vocab_size);
  if (options.padding_id >= 0 && words_.value().raw() != nullptr)
    ops::fill(words_.value().select(0, options.padding_id), 0);
  if (!options.bare) {
    positions_ = table("position", options.max_positions);
    position_ids_ = positions(options.max_positions, init.device);
    types_ = table("token_type", options.types);
    norm_ = register_module("bert.embeddings.LayerNorm",
                            std::make_shared<LayerNorm>(init, width, options.eps));
  }
  for (int64_t i = 0; i < options.layers; ++i)
    layers_.push_back(register_module("bert.encoder.layer." + std::to_string(i),
                                      std::make_shared<Layer>(init, options)));
  if (options.head == BertHead::classification) {
    if (!options.bare)
      pooler_ =
          register_module("bert.pooler.dense", normal_dense(init, width, width, kBertDeviation));
    classifier_ = register_module("classifier",
                                  normal_dense(init, width, options.num_classes, kBertDeviation));
    return;
  }
  decoder_bias_ =
      register_parameter("cls.predictions.bias", constant(init, {options.vocab_size}, 0));
  transform_ = register_module("cls.predictions.transform.dense",
                               normal_dense(init, width, width, kBertDeviation));
  transform_norm_ = register_module("cls.predictions.transform.LayerNorm",
                                    std::make_shared<LayerNorm>(init, width, options.eps));
}

Variable Bert::embed(const Tensor& ids, Context& context) {
  const Variable words = embedding(ids, words_, options_.padding_id);
  if (options_.bare) return as_activation(words, context);
  const Tensor given = checked_extra("bert", context, "token_type_ids", ids);
  const Tensor types = given.defined() ? given : Tensor::zeros({1}, DType::i64, ids.device());
  const Variable around =
      add(embedding(position_ids_.slice(0, 0, ids.size(1)), positions_), embedding(types, types_));
  const Variable sum = as_activation(add(words, around), context);
  return drop(norm_->forward(sum, context), options_.dropout, context);
}

HeadedModule::Head Bert::before_output(Variable ids, Context& context) {
  check_ids("bert", ids.value(), options_.bare ? INT64_MAX : options_.max_positions);
  checked_extra("bert", context, "attention_mask", ids.value());
  Variable x = embed(ids.value(), context);
  const bool first = options_.head == BertHead::classification;
  for (const auto& layer : layers_) {
    const bool last = first && layer == layers_.back();
    x = checkpointed(context, std::move(x), [layer, last](Variable in, Context& inner) {
      return last ? layer->forward_first(std::move(in), inner)
                  : layer->forward(std::move(in), inner);
    });
  }
  if (options_.head == BertHead::masked_lm) {
    x = transform_norm_->forward(dense_gelu(*transform_, x, context), context);
    return {std::move(x), words_, decoder_bias_};
  }
  if (layers_.empty()) x = first_token(x);
  x = reshape(x, {x.size(0), x.size(2)});
  if (pooler_ != nullptr)
    x = drop(tanh(pooler_->forward(std::move(x), context)), options_.dropout, context);
  return {std::move(x), classifier_->weight(), classifier_->bias()};
}

}  // namespace frugal::models
