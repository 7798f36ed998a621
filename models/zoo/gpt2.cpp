#include "models/zoo/gpt2.h"

#include <cmath>

#include "autograd/functions.h"
#include "models/checkpointed.h"
#include "models/dense.h"

namespace frugal::models {
namespace {

constexpr double kGpt2Deviation = 0.02;  // standard deviation of initial weights

}  // namespace

// Each norm precedes its branch: x = x + attention(norm(x)), x = x + mlp(norm(x)).
class Gpt2::Layer : public Module {
 public:
  Layer(Init& init, const Gpt2Options& options)
      : options_(options),
        norm1_(norm(init, "ln_1")),
        qkv_(dense(init, "attn.c_attn", options.hidden, 3 * options.hidden, kGpt2Deviation)),
        projection_(dense(init, "attn.c_proj", options.hidden, options.hidden, residual())),
        norm2_(norm(init, "ln_2")),
        up_(dense(init, "mlp.c_fc", options.hidden, inner(), kGpt2Deviation)),
        down_(dense(init, "mlp.c_proj", inner(), options.hidden, residual())) {}

  Variable forward(Variable x, Context& context) override {
    Variable y = self_attention(qkv_->forward(norm1_->forward(x, context), context), attention(),
                                decoder_mask(context), {}, context);
    return rest(std::move(x), std::move(y), context);
  }

  // For the tokens that follow those in `keys` and `values`. Both grow by the new tokens.
  Variable continued(Variable x, Tensor& keys, Tensor& values, Context& context) const {
    const Variable qkv = qkv_->forward(norm1_->forward(x, context), context);
    const int64_t width = options_.hidden;
    const auto grown = [&](Tensor& past, int64_t third) {
      return Variable(append(past, qkv.value().slice(2, third * width, (third + 1) * width)));
    };
    const Variable k = grown(keys, 1), v = grown(values, 2);
    return rest(std::move(x),
                self_attention(slice(qkv, 2, 0, width), k, v, attention(), {}, context), context);
  }

 private:
  SelfAttentionOptions attention() const {
    return {options_.heads, options_.attention_dropout, true};
  }
  // The part of the layer after attention, whose output is y.
  Variable rest(Variable x, Variable y, Context& context) const {
    y = projection_->forward(std::move(y), context);
    x = add(drop(y, options_.dropout, context), x);
    y = {};  // nobody keeps it
    y = dense_gelu(*up_, norm2_->forward(x, context), context, frugal::Gelu::tanh);
    y = down_->forward(std::move(y), context);
    return add(drop(y, options_.dropout, context), x);
  }
  int64_t inner() const { return options_.inner > 0 ? options_.inner : 4 * options_.hidden; }
  // Weights that add to the residual stream start smaller, by the number of such additions.
  double residual() const {
    return kGpt2Deviation / std::sqrt(2 * static_cast<double>(options_.layers));
  }
  std::shared_ptr<Dense> dense(Init& init, const char* name, int64_t in, int64_t out,
                               double deviation) {
    return register_module(name, normal_dense(init, in, out, deviation, Layout::transposed_linear));
  }
  std::shared_ptr<LayerNorm> norm(Init& init, const char* name) {
    return register_module(name, std::make_shared<LayerNorm>(init, options_.hidden, options_.eps));
  }

  Gpt2Options options_;
  std::shared_ptr<LayerNorm> norm1_;
  std::shared_ptr<Dense> qkv_, projection_;
  std::shared_ptr<LayerNorm> norm2_;
  std::shared_ptr<Dense> up_, down_;
};

const Published<Gpt2Options>& Gpt2Options::published() {
  static const Published<Gpt2Options> all = {
      {"gpt2", {12, 768, 12}},
      {"gpt2_medium", {24, 1024, 16}},
      {"gpt2_large", {36, 1280, 20}},
      {"gpt2_xl", {48, 1600, 25}},
  };
  return all;
}

Gpt2Options gpt2_options(const std::string& name) {
  return find_published(Gpt2Options::published(), "gpt2", name);
}

Gpt2::Gpt2(Init& init, const Gpt2Options& options) : options_(options) {
  check_heads("gpt2", options.hidden, options.heads);
  const auto table = [&](const char* name, int64_t rows, bool is_head) {
    return register_module(
        name, std::make_shared<EmbeddingTable>(normal(init, {rows, options.hidden}, kGpt2Deviation),
                                               is_head));
  };
  tokens_ = table("transformer.wte", options.vocab_size, options.tied);
  positions_ = table("transformer.wpe", options.context_length, false);
  position_ids_ = positions(options.context_length, init.device);
  for (int64_t i = 0; i < options.layers; ++i)
    layers_.push_back(register_module("transformer.h." + std::to_string(i),
                                      std::make_shared<Layer>(init, options)));
  norm_ = register_module("transformer.ln_f",
                          std::make_shared<LayerNorm>(init, options.hidden, options.eps));
  if (!options.tied)
    output_ = register_module(
        "lm_head", std::make_shared<Dense>(
                       normal(init, {options.vocab_size, options.hidden}, kGpt2Deviation)));
}

// Embeds tokens at the positions `at`, [T] or [N, T].
Variable Gpt2::embedded(const Tensor& ids, const Tensor& at, Context& context) const {
  const Variable x = add(tokens_->rows(ids), positions_->rows(at));
  return drop(as_activation(x, context), options_.dropout, context);
}

Variable Gpt2::continued(const Tensor& ids, Past& past, Context& context) {
  check_ids("gpt2", ids, options_.context_length - past.tokens);
  past.keys.resize(layers_.size());
  past.values.resize(layers_.size());
  const Tensor at = position_ids_.slice(0, past.tokens, past.tokens + ids.size(1));
  Variable x = embedded(ids, at, context);
  for (size_t i = 0; i < layers_.size(); ++i)
    x = layers_[i]->continued(std::move(x), past.keys[i], past.values[i], context);
  past.tokens += ids.size(1);
  return norm_->forward(std::move(x), context);
}

HeadedModule::Head Gpt2::head(Variable hidden) {
  return {std::move(hidden), output_ == nullptr ? tokens_->weight() : output_->weight(), {}};
}

void Gpt2::untie_head() { output_ = register_module("lm_head", tokens_->leave_head()); }

Variable Gpt2::hidden(const Tensor& ids, Context& context) {
  check_ids("gpt2", ids, options_.context_length);
  checked_extra("gpt2", context, "attention_mask", ids);
  const Tensor own = positions_in_samples("gpt2", context, ids);
  Variable x = embedded(ids, own.defined() ? own : position_ids_.slice(0, 0, ids.size(1)), context);
  for (const auto& layer : layers_)
    x = checkpointed(context, std::move(x), [layer](Variable in, Context& inner) {
      return layer->forward(std::move(in), inner);
    });
  return norm_->forward(std::move(x), context);
}

}  // namespace frugal::models
