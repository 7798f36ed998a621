#include "models/detection/trunk.h"

#include <cmath>

#include "autograd/operators.h"
#include "models/zoo/residual_blocks.h"

namespace frugal::models {
namespace {

constexpr ConvInit kInit = ConvInit::kaiming_fan_out;

Conv2dOptions same(int64_t kernel, int64_t stride = 1) {
  Conv2dOptions options;
  options.stride = {stride, stride};
  options.padding = {kernel / 2, kernel / 2};
  return options;
}

// torchvision's kaiming_uniform_ with a = 1: the variance of the weights is 1 / fan_in.
std::shared_ptr<FilledConv2d> pyramid_conv(Init& init, int64_t in, int64_t out, int64_t kernel,
                                           int64_t stride = 1) {
  const double bound = std::sqrt(3 / static_cast<double>(kernel * kernel * in));
  return std::make_shared<FilledConv2d>(uniform(init, {out, kernel, kernel, in}, bound),
                                        constant(init, {out}, 0), same(kernel, stride));
}

}  // namespace

ResNetOptions trunk_options(const std::string& name) {
  for (const auto& [each, options] : ResNetOptions::published())
    if (each == name) return options;
  throw OptionError(
      "trunk",
      fmt::format("expected one of torchvision's ResNets, such as resnet50, got {}", name));
}

std::shared_ptr<FilledConv2d> normal_conv(Init& init, int64_t in, int64_t out, int64_t kernel,
                                          double deviation, double bias) {
  return std::make_shared<FilledConv2d>(normal(init, {out, kernel, kernel, in}, deviation),
                                        constant(init, {out}, bias), same(kernel));
}

Pyramid::Pyramid(Init& init, const PyramidOptions& options) : options_(options) {
  const ResNetOptions& trunk = options.trunk;
  FRUGAL_CHECK(options.first_stage >= 1 && options.first_stage <= 4,
               "[pyramid] expected a first stage in [1, 4], got {}", options.first_stage);
  int64_t channels = trunk.bottleneck ? kBottleneckChannels : trunk.width;
  conv1_ =
      register_module("body.conv1", conv_same(init, options.in_channels, channels, 7, 2, kInit));
  bn1_ = register_module("body.bn1", std::make_shared<BatchNorm2d>(init, channels));
  std::vector<int64_t> given;
  for (size_t s = 0; s < layers_.size(); ++s) {
    const int64_t width = trunk.width << s, stride = s == 0 ? 1 : 2;
    layers_[s] =
        trunk.bottleneck
            ? residual_stage<Bottleneck>(init, channels, kExpansion * kBottleneckChannels << s,
                                         trunk.depths[s], stride, width)
            : residual_stage<BasicBlock>(init, channels, width, trunk.depths[s], stride, width);
    register_module(fmt::format("body.layer{}", s + 1), layers_[s]);
    if (static_cast<int64_t>(s) + 1 >= options.first_stage) given.push_back(channels);
  }
  for (size_t i = 0; i < given.size(); ++i)
    inner_.push_back(register_module(fmt::format("fpn.inner_blocks.{}.0", i),
                                     pyramid_conv(init, given[i], options.width, 1)));
  for (size_t i = 0; i < given.size(); ++i)
    outer_.push_back(register_module(fmt::format("fpn.layer_blocks.{}.0", i),
                                     pyramid_conv(init, options.width, options.width, 3)));
  if (options.last == LastLevels::p6_p7)
    for (const char* name : {"p6", "p7"})
      extra_.push_back(register_module(fmt::format("fpn.extra_blocks.{}", name),
                                       pyramid_conv(init, options.width, options.width, 3, 2)));
}

Variables Pyramid::levels(Variable x, Context& context) {
  FRUGAL_CHECK(x.value().dim() == 4 && x.size(1) >= 1 && x.size(2) >= 1,
               "[pyramid] expected pictures [N, H, W, C], got {}", describe(x.value()));
  x = bn1_->forward_relu(conv1_->forward(std::move(x), context), context);
  Pool2dOptions pool;
  pool.kernel = {3, 3};
  pool.stride = {2, 2};
  pool.padding = {1, 1};
  x = max_pool2d(x, pool);
  Variables stages;
  for (size_t s = 0; s < layers_.size(); ++s) {
    x = layers_[s]->forward(std::move(x), context);
    if (static_cast<int64_t>(s) + 1 >= options_.first_stage) stages.push_back(x);
  }
  x = Variable();
  Variables levels(stages.size());
  Variable inner;
  for (size_t i = stages.size(); i-- > 0;) {
    Variable lateral = inner_[i]->forward(std::move(stages[i]), context);
    inner = inner.defined() ? lateral + interpolate(inner, lateral.size(1), lateral.size(2))
                            : std::move(lateral);
    levels[i] = outer_[i]->forward(inner, context);
  }
  if (options_.last == LastLevels::max_pool) {
    Pool2dOptions second;
    second.kernel = {1, 1};
    second.stride = {2, 2};
    levels.push_back(max_pool2d(levels.back(), second));
  } else {
    // As in torchvision, p6 is made of the last level of the pyramid.
    levels.push_back(extra_[0]->forward(levels.back(), context));
    levels.push_back(extra_[1]->forward(relu(levels.back()), context));
  }
  return levels;
}

Variable Pyramid::forward(Variable x, Context& context) {
  return levels(std::move(x), context).front();
}

}  // namespace frugal::models
