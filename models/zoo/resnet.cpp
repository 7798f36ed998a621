#include "models/zoo/resnet.h"

#include <numeric>

#include "models/zoo/residual_blocks.h"

namespace frugal::models {
namespace {

constexpr ConvInit kResNetInit = ConvInit::kaiming_fan_out;

// Why no such network has so many layers; empty: one has.
std::string refused_layers(const ResNetOptions& options, int64_t layers) {
  const int64_t own = layers_of(options), each = layers_of_block(options);
  if (layers >= own && (layers - own) % each == 0) return "";
  return fmt::format("expected {} layers, or more by a multiple of {}, got {}", own, each, layers);
}

}  // namespace

const Published<ResNetOptions>& ResNetOptions::published() {
  static const Published<ResNetOptions> all = {
      {"resnet18", {{2, 2, 2, 2}, false}},
      {"resnet34", {{3, 4, 6, 3}, false}},
      {"resnet50", {{3, 4, 6, 3}, true}},
      {"resnet101", {{3, 4, 23, 3}, true}},
      {"resnet152", {{3, 8, 36, 3}, true}},
      {"wide_resnet50_2", {{3, 4, 6, 3}, true, 128}},
      {"wide_resnet101_2", {{3, 4, 23, 3}, true, 128}},
  };
  return all;
}

ResNetOptions resnet_options(const std::string& name) {
  return find_published(ResNetOptions::published(), "resnet", name);
}

int64_t layers_of_block(const ResNetOptions& options) { return options.bottleneck ? 3 : 2; }

int64_t layers_of(const ResNetOptions& options) {
  const auto& depths = options.depths;
  return layers_of_block(options) * std::accumulate(depths.begin(), depths.end(), int64_t{0}) + 2;
}

void deepen(ResNetOptions& options, int64_t layers) {
  const std::string refused = refused_layers(options, layers);
  FRUGAL_CHECK(refused.empty(), "[resnet] {}", refused);
  auto& depths = options.depths;
  const int64_t added = (layers - layers_of(options)) / layers_of_block(options);
  const int64_t second = added * depths[1] / (depths[1] + depths[2]);
  depths[1] += second;
  depths[2] += added - second;
}

void ResNetOptions::set_layers(ResNetOptions& options, const Value& layers) {
  const std::string refused = refused_layers(options, layers.integer());
  if (!refused.empty()) throw OptionError("layers", refused);
  deepen(options, layers.integer());
}

void ResNetOptions::set_sizes(Sizes& sizes, const ResNetOptions& options) {
  sizes.least_layers = layers_of(options);
  sizes.layers_step = layers_of_block(options);
}

ResNet::ResNet(Init& init, const ResNetOptions& options) : stem_(options.stem) {
  const bool imagenet = stem_ == Stem::imagenet;
  int64_t channels = options.bottleneck ? kBottleneckChannels : options.width;
  conv1_ = register_module("conv1", conv_same(init, options.in_channels, channels, imagenet ? 7 : 3,
                                              imagenet ? 2 : 1, kResNetInit));
  bn1_ = register_module("bn1", std::make_shared<BatchNorm2d>(init, channels));
  for (size_t s = 0; s < 4; ++s) {
    const int64_t width = options.width << s, stride = s == 0 ? 1 : 2;
    layers_[s] =
        options.bottleneck
            ? residual_stage<Bottleneck>(init, channels, kExpansion * kBottleneckChannels << s,
                                         options.depths[s], stride, width)
            : residual_stage<BasicBlock>(init, channels, width, options.depths[s], stride, width);
    register_module("layer" + std::to_string(s + 1), layers_[s]);
  }
  if (options.num_classes > 0)
    fc_ = register_module("fc", std::make_shared<Linear>(init, channels, options.num_classes));
}

Variable ResNet::forward(Variable x, Context& context) {
  Variable y = bn1_->forward_relu(conv1_->forward(std::move(x), context), context);
  if (stem_ == Stem::imagenet) {
    Pool2dOptions pool;
    pool.kernel = {3, 3};
    pool.stride = {2, 2};
    pool.padding = {1, 1};
    y = max_pool2d(y, pool);
  }
  for (const auto& layer : layers_) y = layer->forward(std::move(y), context);
  y = global_avg_pool2d(y);
  return fc_ == nullptr ? y : fc_->forward(std::move(y), context);
}

}  // namespace frugal::models
