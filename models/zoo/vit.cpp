#include "models/zoo/vit.h"

#include <cmath>

#include "autograd/functions.h"
#include "models/checkpointed.h"
#include "models/dense.h"

namespace frugal::models {
namespace {

constexpr double kVitEps = 1e-6;
constexpr double kBiasDeviation = 1e-6;  // standard deviation of the initial biases of the mlp

int64_t mlp_of(const VitOptions& options) {
  return options.mlp > 0 ? options.mlp : 4 * options.hidden;
}

double xavier(int64_t in, int64_t out) { return std::sqrt(6.0 / static_cast<double>(in + out)); }

}  // namespace

// Each norm precedes its branch: x = x + attention(norm(x)), x = x + mlp(norm(x)).
class Vit::Layer : public Module {
 public:
  Layer(Init& init, const VitOptions& options, double stochastic_depth)
      : options_(options),
        stochastic_depth_(stochastic_depth),
        norm1_(norm(init, "ln_1")),
        qkv_weight_(register_parameter("self_attention.in_proj_weight",
                                       uniform(init, {3 * options.hidden, options.hidden},
                                               xavier(options.hidden, 3 * options.hidden)))),
        qkv_bias_(register_parameter("self_attention.in_proj_bias",
                                     constant(init, {3 * options.hidden}, 0))) {
    const double bound = 1 / std::sqrt(static_cast<double>(options.hidden));
    Tensor weight = uniform(init, {options.hidden, options.hidden}, bound);
    projection_ = register_module(
        "self_attention.out_proj",
        std::make_shared<Dense>(std::move(weight), constant(init, {options.hidden}, 0)));
    norm2_ = norm(init, "ln_2");
    up_ = dense(init, "mlp.0", options.hidden, mlp_of(options));
    down_ = dense(init, "mlp.3", mlp_of(options), options.hidden);
  }

  Variable forward(Variable x, Context& context) override {
    return run(std::move(x), false, context);
  }
  Variable forward_first(Variable x, Context& context) {  // [N, T, H] -> [N, 1, H]
    return run(std::move(x), true, context);
  }

 private:
  Variable run(Variable x, bool first, Context& context) {
    const SelfAttentionOptions attention{options_.heads, options_.attention_dropout, false};
    Variable y = linear(norm1_->forward(x, context), qkv_weight_, qkv_bias_);
    y = first ? first_token_attention(y, attention, context)
              : self_attention(y, attention, {}, {}, context);
    if (first) x = first_token(x);
    y = projection_->forward(std::move(y), context);
    x = add(branch(y, context), x);
    y = {};  // nobody saves it, so its memory is released here
    y = drop(dense_gelu(*up_, norm2_->forward(x, context), context), options_.dropout, context);
    y = down_->forward(std::move(y), context);
    return add(branch(y, context), x);
  }
  Variable branch(const Variable& y, Context& context) const {
    return drop_samples(drop(y, options_.dropout, context), stochastic_depth_, context);
  }

  std::shared_ptr<Dense> dense(Init& init, const char* name, int64_t in, int64_t out) {
    Tensor weight = uniform(init, {out, in}, xavier(in, out));
    return register_module(
        name, std::make_shared<Dense>(std::move(weight), normal(init, {out}, kBiasDeviation)));
  }
  std::shared_ptr<LayerNorm> norm(Init& init, const char* name) {
    return register_module(name, std::make_shared<LayerNorm>(init, options_.hidden, kVitEps));
  }

  VitOptions options_;
  double stochastic_depth_;
  std::shared_ptr<LayerNorm> norm1_;
  Variable qkv_weight_, qkv_bias_;
  std::shared_ptr<Dense> projection_;
  std::shared_ptr<LayerNorm> norm2_;
  std::shared_ptr<Dense> up_, down_;
};

const Published<VitOptions>& VitOptions::published() {
  static const Published<VitOptions> all = {
      {"vit_b_16", {16, 12, 12, 768}},  {"vit_b_32", {32, 12, 12, 768}},
      {"vit_l_16", {16, 24, 16, 1024}}, {"vit_l_32", {32, 24, 16, 1024}},
      {"vit_h_14", {14, 32, 16, 1280}},
  };
  return all;
}

VitOptions vit_options(const std::string& name) {
  return find_published(VitOptions::published(), "vit", name);
}

Vit::Vit(Init& init, const VitOptions& options) : options_(options) {
  check_heads("vit", options.hidden, options.heads);
  FRUGAL_CHECK(options.patch >= 1 && options.image >= 1 && options.image % options.patch == 0,
               "[vit] expected an image that is a multiple of the patch {}, got {}", options.patch,
               options.image);
  const int64_t width = options.hidden, side = options.image / options.patch;
  class_token_ = register_parameter("class_token", constant(init, {1, 1, width}, 0));
  Conv2dOptions each;
  each.stride = {options.patch, options.patch};
  const Shape shape{width, options.patch, options.patch, options.in_channels};
  Tensor weight = normal(
      init, shape, std::sqrt(static_cast<double>(width) / static_cast<double>(shape.numel())));
  patches_ = register_module("conv_proj", std::make_shared<FilledConv2d>(
                                              std::move(weight), constant(init, {width}, 0), each));
  positions_ =
      register_parameter("encoder.pos_embedding", normal(init, {1, side * side + 1, width}, 0.02));
  for (int64_t i = 0; i < options.layers; ++i)
    layers_.push_back(register_module(
        "encoder.layers.encoder_layer_" + std::to_string(i),
        std::make_shared<Layer>(init, options,
                                depth_rate(options.stochastic_depth, i, options.layers))));
  norm_ = register_module("encoder.ln", std::make_shared<LayerNorm>(init, width, kVitEps));
  head_ = register_module("heads.head",
                          std::make_shared<Dense>(constant(init, {options.num_classes, width}, 0),
                                                  constant(init, {options.num_classes}, 0)));
}

Variable Vit::forward(Variable x, Context& context) {
  FRUGAL_CHECK(x.value().dim() == 4 && x.size(1) == options_.image && x.size(2) == options_.image,
               "[vit] expected images [N, {0}, {0}, C], got {1}", options_.image,
               describe(x.value()));
  const int64_t n = x.size(0), width = options_.hidden, pixels = positions_.size(1) - 1;
  x = reshape(patches_->forward(std::move(x), context), {n, pixels, width});
  // The class token is written to the place that the padding of the patches leaves free.
  const Variable around = add(positions_, pad(class_token_, {{0, 0}, {0, pixels}, {0, 0}}));
  x = add(pad(x, {{0, 0}, {1, 0}, {0, 0}}), cast(around, x.dtype()));
  x = drop(x, options_.dropout, context);
  for (const auto& layer : layers_) {
    const bool last = layer == layers_.back();
    x = checkpointed(context, std::move(x), [layer, last](Variable in, Context& inner) {
      return last ? layer->forward_first(std::move(in), inner)
                  : layer->forward(std::move(in), inner);
    });
  }
  if (layers_.empty()) x = first_token(x);
  x = reshape(x, {n, width});
  return head_->forward(norm_->forward(std::move(x), context), context);
}

}  // namespace frugal::models
