#include "models/zoo/resnet_trunk.h"

#include "models/zoo/residual_blocks.h"
#include "models/zoo/segmentation_parts.h"

namespace frugal::models {
namespace {

constexpr ConvInit kTrunkInit = ConvInit::kaiming_fan_out;

}  // namespace

ResNetTrunk::ResNetTrunk(Init& init, const ResNetTrunkOptions& options) : width_(options.width) {
  if (options.deep_stem) {
    stem_ = std::make_shared<Sequential>();
    int64_t in = options.in_channels;
    for (const auto& [out, stride] : {Pair{width_ / 2, 2}, Pair{width_ / 2, 1}, Pair{width_, 1}}) {
      append_conv_norm_relu(*stem_, init, in, out, {.kernel = 3, .stride = stride}, kTrunkInit);
      in = out;
    }
    stem_->set_blocks({});
    register_module("stem", stem_);
  } else {
    conv1_ =
        register_module("conv1", conv_same(init, options.in_channels, width_, 7, 2, kTrunkInit));
    bn1_ = register_module("bn1", std::make_shared<BatchNorm2d>(init, width_));
  }
  int64_t channels = width_, dilation = 1;
  for (size_t s = 0; s < layers_.size(); ++s) {
    const int64_t before = dilation;
    const bool dilated = s > 0 && options.dilated[s - 1];
    if (dilated) dilation *= 2;
    layers_[s] =
        residual_stage<Bottleneck>(init, channels, this->channels(s), options.depths[s],
                                   s == 0 || dilated ? 1 : 2, width_ << s, {before, dilation});
    register_module("layer" + std::to_string(s + 1), layers_[s]);
  }
}

Variables ResNetTrunk::stages(Variable x, Context& context, const Wanted& wanted) {
  Variable y = stem_ != nullptr
                   ? stem_->forward(std::move(x), context)
                   : bn1_->forward_relu(conv1_->forward(std::move(x), context), context);
  Pool2dOptions pool;
  pool.kernel = {3, 3};
  pool.stride = {2, 2};
  pool.padding = {1, 1};
  y = max_pool2d(y, pool);
  Variables features(layers_.size());
  for (size_t s = 0; s < layers_.size(); ++s) {
    y = layers_[s]->forward(std::move(y), context);
    if (wanted[s]) features[s] = y;
  }
  return features;
}

Variable ResNetTrunk::forward(Variable x, Context& context) {
  return stages(std::move(x), context, {false, false, false, true}).back();
}

}  // namespace frugal::models
