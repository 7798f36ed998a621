#include "models/zoo/drn.h"

#include <algorithm>
#include <cmath>

#include "models/zoo/residual_blocks.h"
#include "models/zoo/segmentation_parts.h"
#include "ops/dense/copy.h"

namespace frugal::models {
namespace {

constexpr ConvInit kDrnInit = ConvInit::kaiming_fan_out;
constexpr std::array<int64_t, 8> kDrnChannels = {16, 32, 64, 128, 256, 512, 512, 512};
constexpr std::array<int64_t, 8> kStrides = {1, 2, 2, 2, 1, 1, 1, 1};
constexpr std::array<int64_t, 8> kDilations = {1, 1, 1, 1, 2, 4, 2, 1};
constexpr int64_t kFirstBlocks = 3, kLastBlocks = 6;  // levels of residual blocks
constexpr int64_t kScale = 8, kWindow = 2 * kScale;

// The weights [classes, 1, 16, 16] of bilinear interpolation to 8 times the size.
Tensor bilinear_weights(const Init& init, int64_t classes) {
  CategoryScope scope(Category::parameter);
  Tensor weight = Tensor::empty({classes, 1, kWindow, kWindow}, DType::f32, drawn_on(init.device));
  float* value = weight.mut<float>();
  if (value == nullptr) return weight;  // meta
  const auto share = [](int64_t at) {
    const double centre = static_cast<double>(kScale) - 0.5;
    return 1 - std::abs(static_cast<double>(at) - centre) / static_cast<double>(kScale);
  };
  for (int64_t k = 0; k < classes; ++k)
    for (int64_t r = 0; r < kWindow; ++r)
      for (int64_t s = 0; s < kWindow; ++s) *value++ = static_cast<float>(share(r) * share(s));
  return to_device(weight, init.device);
}

}  // namespace

const Published<DrnOptions>& DrnOptions::published() {
  static const Published<DrnOptions> all = {
      {"drn_d_22", {{1, 1, 2, 2, 2, 2, 1, 1}}},
      {"drn_d_38", {{1, 1, 3, 4, 6, 3, 1, 1}}},
  };
  return all;
}

DrnOptions drn_options(const std::string& name) {
  return find_published(DrnOptions::published(), "drn", name);
}

Drn::Drn(Init& init, const DrnOptions& options) {
  const auto named = [](size_t level) { return fmt::format("base.{}", level); };
  levels_[0] = register_module(named(0), conv_norm_relu(init, options.in_channels, kDrnChannels[0],
                                                        {.kernel = 7}, kDrnInit));
  int64_t channels = kDrnChannels[0];
  for (size_t i = 0; i < kDrnChannels.size(); ++i) {
    const auto level = static_cast<int64_t>(i) + 1;
    const int64_t dilation = kDilations[i], out = kDrnChannels[i];
    if (level >= kFirstBlocks && level <= kLastBlocks) {
      levels_[i + 1] = residual_stage<BasicBlock>(init, channels, out, options.depths[i],
                                                  kStrides[i], out, {dilation, dilation});
    } else {
      levels_[i + 1] = std::make_shared<Sequential>();
      for (int64_t k = 0; k < options.depths[i]; ++k, channels = out)
        append_conv_norm_relu(*levels_[i + 1], init, channels, out,
                              {.stride = k == 0 ? kStrides[i] : 1, .dilation = dilation}, kDrnInit);
      levels_[i + 1]->set_blocks({});
    }
    register_module(named(i + 1), levels_[i + 1]);
  }
  const double deviation = std::sqrt(2.0 / static_cast<double>(options.num_classes));
  last_ = register_module("seg", pixel_classifier(init, channels, options.num_classes, deviation));
  enlarge_ =
      &register_buffer("up.weight", bilinear_weights(init, options.num_classes), BufferUse::equal);
}

Variable Drn::forward(Variable x, Context& context) {
  const int64_t height = x.size(1), width = x.size(2);
  for (const auto& level : levels_) x = level->forward(std::move(x), context);
  x = last_->forward(std::move(x), context);
  ConvTranspose2dOptions options;
  options.stride = {kScale, kScale};
  options.padding = {kScale / 2, kScale / 2};
  options.groups = x.size(3);
  // With one channel the files' order [C, 1, R, S] is ours, [C, R, S, 1].
  const Tensor weight = enlarge_->view({options.groups, kWindow, kWindow, 1});
  const DType beside = x.dtype() == DType::f64 ? DType::f64 : DType::f32;  // weights are never bf16
  const Variable y =
      conv_transpose2d(x, Variable::constant(ops::cast(weight, beside)), {}, options);
  // Sizes that 8 does not divide are rounded up by the strides.
  return slice(slice(y, 1, 0, height), 2, 0, width);
}

}  // namespace frugal::models
