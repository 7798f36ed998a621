#include "models/zoo/dilation8.h"

#include <algorithm>
#include <array>

#include "models/dense.h"
#include "models/zoo/segmentation_parts.h"

namespace frugal::models {
namespace {

constexpr std::array<int64_t, 5> kDepths = {2, 2, 3, 3, 3};
constexpr size_t kPooledLevels = 3;  // levels with a max-pool behind them
constexpr double kFrontDeviation = 0.001;

// The weights of a convolution of odd kernel that gives its input again.
Tensor identity_weights(const Init& init, int64_t channels, int64_t kernel) {
  CategoryScope scope(Category::parameter);
  Tensor weight =
      Tensor::zeros({channels, kernel, kernel, channels}, DType::f32, drawn_on(init.device));
  float* values = weight.mut<float>();
  if (values == nullptr) return weight;  // meta
  const int64_t centre = kernel * kernel / 2;
  for (int64_t k = 0; k < channels; ++k) values[(k * kernel * kernel + centre) * channels + k] = 1;
  return to_device(weight, init.device);
}

}  // namespace

Dilation8::Dilation8(Init& init, const Dilation8Options& options) : dropout_(options.dropout) {
  int64_t channels = options.in_channels;
  const auto add = [&](const std::string& name, Tensor weight, int64_t dilation, Then then) {
    const int64_t kernel = weight.size(1);
    channels = weight.size(0);
    auto conv = std::make_shared<FilledConv2d>(std::move(weight), constant(init, {channels}, 0),
                                               same_size({.kernel = kernel, .dilation = dilation}));
    steps_.emplace_back(register_module(name, std::move(conv)), then);
  };
  const auto drawn = [&](int64_t out, int64_t kernel) {
    return kaiming_normal(init, {out, kernel, kernel, channels}, kernel * kernel * channels);
  };
  for (size_t level = 0; level < kDepths.size(); ++level)
    for (int64_t i = 1; i <= kDepths[level]; ++i) {
      const bool pooled = level < kPooledLevels && i == kDepths[level];
      add(fmt::format("conv{}_{}", level + 1, i),
          drawn(int64_t{64} << std::min<size_t>(level, 3), 3), level < 4 ? 1 : 2,
          pooled ? Then::relu_and_pool : Then::relu);
    }
  add("fc6", drawn(options.hidden, 7), 4, Then::relu_and_dropout);
  add("fc7", drawn(options.hidden, 1), 1, Then::relu_and_dropout);
  const int64_t classes = options.num_classes;
  add("final", normal(init, {classes, 1, 1, channels}, kFrontDeviation), 1, Then::nothing);
  for (const auto& [name, dilation] : {std::pair<const char*, int64_t>{"conv1_1", 1},
                                       {"conv1_2", 1},
                                       {"conv2_1", 2},
                                       {"conv3_1", 4},
                                       {"conv4_1", 8},
                                       {"conv5_1", 16},
                                       {"fc1", 1}})
    add(fmt::format("ctx_{}", name), identity_weights(init, classes, 3), dilation, Then::relu);
  add("ctx_final", identity_weights(init, classes, 1), 1, Then::nothing);
}

ResizedModule::Small Dilation8::before_resize(Variable x, Context& context) {
  const int64_t height = x.size(1), width = x.size(2);
  FRUGAL_CHECK(height >= 8 && width >= 8,
               "[dilation8] expected images [N, H, W, C] of at least 8 x 8, got {}",
               describe(x.value()));
  for (const auto& [layer, then] : steps_) {
    x = layer->forward(std::move(x), context);
    if (then != Then::nothing) x = relu(x);
    if (then == Then::relu_and_pool) x = max_pool2d(x, {});
    if (then == Then::relu_and_dropout) x = drop(x, dropout_, context);
  }
  return {std::move(x), height, width};
}

}  // namespace frugal::models
