#include "models/zoo/semantic_fpn.h"

#include <algorithm>
#include <cmath>

#include "models/activations.h"
#include "models/dense.h"
#include "models/zoo/segmentation_parts.h"

namespace frugal::models {
namespace {

constexpr int64_t kPyramidChannels = 256, kHead = 128;  // channels
constexpr double kLastDeviation = 0.01;

// A convolution with bias and Glorot's uniform weights. Ref: Glorot & Bengio 2010, equation 16.
std::shared_ptr<Module> glorot_conv(Init& init, int64_t in, int64_t out, int64_t kernel) {
  const auto fans = static_cast<double>((in + out) * kernel * kernel);
  return std::make_shared<FilledConv2d>(
      uniform(init, {out, kernel, kernel, in}, std::sqrt(6 / fans)), constant(init, {out}, 0),
      same_size({.kernel = kernel}));
}

// A 3x3 convolution, its norm and a relu, with mmsegmentation's names.
class NamedConv : public Module {
 public:
  NamedConv(Init& init, int64_t in, int64_t out)
      : conv_(register_module("conv", std::make_shared<Conv2d>(init, in, out, 3, same_size({}),
                                                               false, ConvInit::kaiming_fan_out))),
        norm_(register_module("bn", std::make_shared<BatchNorm2d>(init, out))) {}
  Variable forward(Variable x, Context& context) override {
    x = conv_->forward(std::move(x), context);
    return norm_->forward_relu(x, context);
  }

 private:
  std::shared_ptr<Conv2d> conv_;
  std::shared_ptr<BatchNorm2d> norm_;
};

}  // namespace

const Published<SemanticFpnOptions>& SemanticFpnOptions::published() {
  static const Published<SemanticFpnOptions> all = {
      {"fpn_resnet50", {{3, 4, 6, 3}}},
      {"fpn_resnet101", {{3, 4, 23, 3}}},
  };
  return all;
}

SemanticFpnOptions semantic_fpn_options(const std::string& name) {
  return find_published(SemanticFpnOptions::published(), "semantic_fpn", name);
}

SemanticFpn::SemanticFpn(Init& init, const SemanticFpnOptions& options)
    : dropout_(options.dropout) {
  ResNetTrunkOptions trunk;
  trunk.depths = options.depths;
  trunk.width = options.width;
  trunk.in_channels = options.in_channels;
  trunk.deep_stem = true;
  backbone_ = register_module("backbone", std::make_shared<ResNetTrunk>(init, trunk));
  for (size_t i = 0; i < ResNetTrunk::kStages; ++i)
    lateral_.push_back(
        register_module(fmt::format("neck.lateral_convs.{}.conv", i),
                        glorot_conv(init, backbone_->channels(i), kPyramidChannels, 1)));
  for (size_t i = 0; i < ResNetTrunk::kStages; ++i)
    smooth_.push_back(register_module(fmt::format("neck.fpn_convs.{}.conv", i),
                                      glorot_conv(init, kPyramidChannels, kPyramidChannels, 3)));
  last_ = register_module("decode_head.conv_seg",
                          pixel_classifier(init, kHead, options.num_classes, kLastDeviation));
  scale_.resize(ResNetTrunk::kStages);
  for (size_t i = 0; i < ResNetTrunk::kStages; ++i)
    for (size_t k = 0; k < std::max<size_t>(i, 1); ++k)
      // Each convolution but those of the finest resolution is followed by an interpolation, which
      // counts in the names.
      scale_[i].push_back(register_module(
          fmt::format("decode_head.scale_heads.{}.{}", i, 2 * k),
          std::make_shared<NamedConv>(init, k == 0 ? kPyramidChannels : kHead, kHead)));
}

ResizedModule::Small SemanticFpn::before_resize(Variable x, Context& context) {
  const int64_t height = x.size(1), width = x.size(2);
  Variables levels = backbone_->stages(std::move(x), context, {true, true, true, true});
  for (size_t i = levels.size(); i-- > 0;) {
    levels[i] = lateral_[i]->forward(std::move(levels[i]), context);
    if (i + 1 < levels.size())
      levels[i] = add(levels[i], interpolate(levels[i + 1], levels[i].size(1), levels[i].size(2)));
  }
  Variable sum;
  for (size_t i = 0; i < levels.size(); ++i) {
    Variable y = smooth_[i]->forward(std::move(levels[i]), context);
    for (const auto& step : scale_[i]) {
      y = step->forward(std::move(y), context);
      if (i > 0) y = interpolate(y, 2 * y.size(1), 2 * y.size(2), {Interpolation::bilinear, false});
    }
    sum = i == 0 ? std::move(y) : add(sum, resized(y, sum.size(1), sum.size(2)));
  }
  sum = drop_channels(sum, dropout_, context);
  return {last_->forward(std::move(sum), context), height, width};
}

}  // namespace frugal::models
