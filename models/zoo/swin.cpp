#include "models/zoo/swin.h"

#include <cmath>

#include "autograd/functions.h"
#include "models/checkpointed.h"
#include "models/dense.h"
#include "models/zoo/swin_window.h"

namespace frugal::models {
namespace {

constexpr double kSwinEps = 1e-5;
constexpr double kSwinDeviation = 0.02;  // standard deviation of initial weights

}  // namespace

// Each norm precedes its branch: x = x + attention(norm(x)), x = x + mlp(norm(x)).
class Swin::Block : public Module {
 public:
  Block(Init& init, const SwinOptions& options, int64_t width, int64_t heads, int64_t shift,
        double stochastic_depth)
      : options_(options),
        heads_(heads),
        shift_(shift),
        stochastic_depth_(stochastic_depth),
        norm1_(register_module("norm1", std::make_shared<LayerNorm>(init, width, kSwinEps))),
        table_(register_parameter(
            "attn.relative_position_bias_table",
            normal(init, {(2 * options.window - 1) * (2 * options.window - 1), heads},
                   kSwinDeviation))),
        index_(register_buffer("attn.relative_position_index",
                               relative_positions(options.window, init.device), BufferUse::equal)),
        qkv_(dense(init, "attn.qkv", width, 3 * width)),
        projection_(dense(init, "attn.proj", width, width)),
        norm2_(register_module("norm2", std::make_shared<LayerNorm>(init, width, kSwinEps))),
        up_(dense(init, "mlp.0", width, 4 * width)),
        down_(dense(init, "mlp.3", 4 * width, width)) {}

  Variable forward(Variable x, Context& context) override {
    x = add(x, drop_samples(attention(x, context), stochastic_depth_, context));
    Variable y = dense_gelu(*up_, norm2_->forward(x, context), context);
    y = down_->forward(drop(y, options_.dropout, context), context);
    y = drop(y, options_.dropout, context);
    return add(x, drop_samples(y, stochastic_depth_, context));
  }

 private:
  std::shared_ptr<Dense> dense(Init& init, const char* name, int64_t in, int64_t out) {
    return register_module(name, normal_dense(init, in, out, kSwinDeviation));
  }

  Variable attention(const Variable& x, Context& context) {
    const Windows windows(x.shape(), options_.window, shift_);
    // The norm works on each token alone, so it may come before or after the partition into
    // windows. Windows without padding are made before the norm, which then saves them instead of
    // x. With padding, the norm comes first, because the zeros that fill up windows must stay
    // zeros.
    Variable y = windows.padded() ? windows.part(norm1_->forward(x, context))
                                  : norm1_->forward(windows.part(x), context);
    y = qkv_->forward(std::move(y), context);
    // Windows are treated like heads, so that the bias of the scores is the same for all samples.
    const int64_t n = x.size(0), t = windows.tokens(), count = windows.count(), width = x.size(3);
    y = transpose(reshape(y, {n, t, count, 3, width}), 2, 3);
    y = reshape(y, {n, t, 3 * count * width});
    const SelfAttentionOptions each{count * heads_, options_.attention_dropout, false};
    y = self_attention(y, each, windows.apart(heads_, x.device(), x.dtype()),
                       cast(bias(count), x.dtype()), context);
    y = reshape(y, {n, t, count, width});
    y = projection_->forward(std::move(y), context);
    return windows.join(drop(y, options_.dropout, context));
  }

  // The bias by relative position, equal in all windows: [windows * heads, T, T].
  Variable bias(int64_t windows) {
    const int64_t t = options_.window * options_.window;
    const Variable rows = reshape(embedding(index_, table_), {1, t, t, heads_});
    const Variable by_head = transpose(transpose(rows, 2, 3), 1, 2);  // [1, heads, T, T]
    const Tensor each = Tensor::zeros({windows, 1, 1, 1}, table_.dtype(), table_.device());
    return reshape(add(by_head, Variable(each)), {windows * heads_, t, t});
  }

  SwinOptions options_;
  int64_t heads_, shift_;
  double stochastic_depth_;
  std::shared_ptr<LayerNorm> norm1_;
  Variable table_;
  Tensor& index_;
  std::shared_ptr<Dense> qkv_, projection_;
  std::shared_ptr<LayerNorm> norm2_;
  std::shared_ptr<Dense> up_, down_;
};

// [N, H, W, C] -> [N, H/2, W/2, 2C]; odd sides are filled up with zeros.
class Swin::Merging : public Module {
 public:
  Merging(Init& init, int64_t width)
      : norm_(register_module("norm", std::make_shared<LayerNorm>(init, 4 * width, kSwinEps))),
        reduction_(register_module(
            "reduction",
            std::make_shared<Dense>(normal(init, {2 * width, 4 * width}, kSwinDeviation)))) {}

  Variable forward(Variable x, Context& context) override {
    const int64_t n = x.size(0), h = (x.size(1) + 1) / 2, w = (x.size(2) + 1) / 2, c = x.size(3);
    if (x.size(1) % 2 != 0 || x.size(2) % 2 != 0)
      x = pad(x, {{0, 0}, {0, 2 * h - x.size(1)}, {0, 2 * w - x.size(2)}, {0, 0}});
    // Joins four neighbours, ordered by column and then by row.
    x = transpose(transpose(reshape(x, {n, h, 2, w, 2, c}), 2, 3), 3, 4);
    return reduction_->forward(norm_->forward(reshape(x, {n, h, w, 4 * c}), context), context);
  }

 private:
  std::shared_ptr<LayerNorm> norm_;
  std::shared_ptr<Dense> reduction_;
};

const Published<SwinOptions>& SwinOptions::published() {
  static const Published<SwinOptions> all = {
      {"swin_t", {96, {2, 2, 6, 2}, {3, 6, 12, 24}, 0.2}},
      {"swin_s", {96, {2, 2, 18, 2}, {3, 6, 12, 24}, 0.3}},
      {"swin_b", {128, {2, 2, 18, 2}, {4, 8, 16, 32}, 0.5}},
  };
  return all;
}

SwinOptions swin_options(const std::string& name) {
  return find_published(SwinOptions::published(), "swin", name);
}

Swin::Swin(Init& init, const SwinOptions& options) : options_(options) {
  FRUGAL_CHECK(options.patch >= 1 && options.window >= 1,
               "[swin] expected a patch and a window of at least 1, got {} and {}", options.patch,
               options.window);
  Conv2dOptions each;
  each.stride = {options.patch, options.patch};
  patches_ = register_module("features.0.0",
                             std::make_shared<Conv2d>(init, options.in_channels, options.width,
                                                      options.patch, each, true));
  patches_norm_ =
      register_module("features.0.2", std::make_shared<LayerNorm>(init, options.width, kSwinEps));
  int64_t blocks = 0, block = 0, width = options.width;
  for (const int64_t depth : options.depths) blocks += depth;
  for (size_t s = 0; s < blocks_.size(); ++s) {
    check_heads("swin", width, options.heads[s]);
    for (int64_t i = 0; i < options.depths[s]; ++i, ++block) {
      const double p = depth_rate(options.stochastic_depth, block, blocks);
      const int64_t shift = i % 2 == 0 ? 0 : options.window / 2;
      blocks_[s].push_back(register_module(
          fmt::format("features.{}.{}", 2 * s + 1, i),
          std::make_shared<Block>(init, options, width, options.heads[s], shift, p)));
    }
    if (s == mergings_.size()) break;
    mergings_[s] = register_module(fmt::format("features.{}", 2 * s + 2),
                                   std::make_shared<Merging>(init, width));
    width *= 2;
  }
  norm_ = register_module("norm", std::make_shared<LayerNorm>(init, width, kSwinEps));
  head_ = register_module("head", normal_dense(init, width, options.num_classes, kSwinDeviation));
}

Variable Swin::forward(Variable x, Context& context) {
  FRUGAL_CHECK(x.value().dim() == 4 && x.size(1) >= options_.patch && x.size(2) >= options_.patch,
               "[swin] expected images [N, H, W, C] of at least {0} x {0}, got {1}", options_.patch,
               describe(x.value()));
  x = patches_norm_->forward(patches_->forward(std::move(x), context), context);
  for (size_t s = 0; s < blocks_.size(); ++s) {
    for (const auto& block : blocks_[s])
      x = checkpointed(context, std::move(x), [block](Variable in, Context& inner) {
        return block->forward(std::move(in), inner);
      });
    if (s < mergings_.size()) x = mergings_[s]->forward(std::move(x), context);
  }
  return head_->forward(global_avg_pool2d(norm_->forward(std::move(x), context)), context);
}

}  // namespace frugal::models
