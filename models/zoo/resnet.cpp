#include "models/zoo/resnet.h"

#include <map>

namespace frugal::models {
namespace {

constexpr ConvInit kInit = ConvInit::kaiming_fan_out;

// A projection of the block's input if its shape changes, else null.
std::shared_ptr<Sequential> downsample(Init& init, int64_t in, int64_t out, int64_t stride) {
  if (stride == 1 && in == out) return nullptr;
  auto projection = std::make_shared<Sequential>();
  projection->append(conv_same(init, in, out, 1, stride, kInit));
  projection->append(std::make_shared<BatchNorm2d>(init, out));
  return projection;
}

class BasicBlock : public Module {
 public:
  static constexpr int64_t kExpansion = 1;

  BasicBlock(Init& init, int64_t in, int64_t width, int64_t stride, int64_t)
      : conv1_(register_module("conv1", conv_same(init, in, width, 3, stride, kInit))),
        bn1_(register_module("bn1", std::make_shared<BatchNorm2d>(init, width))),
        conv2_(register_module("conv2", conv_same(init, width, width, 3, 1, kInit))),
        bn2_(register_module("bn2", std::make_shared<BatchNorm2d>(init, width))),
        downsample_(downsample(init, in, width, stride)) {
    if (downsample_ != nullptr) register_module("downsample", downsample_);
  }

  Variable forward(Variable x, Context& context) override {
    Variable y = bn1_->forward_relu(conv1_->forward(x, context), context);
    if (downsample_ != nullptr) x = downsample_->forward(std::move(x), context);
    // Called last, so that it runs first in the backward pass and takes the norm's gradient in
    // slices.
    y = conv2_->forward(y, context);
    return bn2_->forward_add_relu(y, std::move(x), context);
  }

 private:
  std::shared_ptr<Conv2d> conv1_;
  std::shared_ptr<BatchNorm2d> bn1_;
  std::shared_ptr<Conv2d> conv2_;
  std::shared_ptr<BatchNorm2d> bn2_;
  std::shared_ptr<Sequential> downsample_;
};

class Bottleneck : public Module {
 public:
  static constexpr int64_t kExpansion = 4;

  Bottleneck(Init& init, int64_t in, int64_t planes, int64_t stride, int64_t width_factor)
      : conv1_(register_module("conv1", conv_same(init, in, planes * width_factor, 1, 1, kInit))),
        bn1_(register_module("bn1", std::make_shared<BatchNorm2d>(init, planes * width_factor))),
        conv2_(register_module("conv2", conv_same(init, planes * width_factor,
                                                  planes * width_factor, 3, stride, kInit))),
        bn2_(register_module("bn2", std::make_shared<BatchNorm2d>(init, planes * width_factor))),
        conv3_(register_module(
            "conv3", conv_same(init, planes * width_factor, planes * kExpansion, 1, 1, kInit))),
        bn3_(register_module("bn3", std::make_shared<BatchNorm2d>(init, planes * kExpansion))),
        downsample_(downsample(init, in, planes * kExpansion, stride)) {
    if (downsample_ != nullptr) register_module("downsample", downsample_);
  }

  Variable forward(Variable x, Context& context) override {
    Variable y = bn1_->forward_relu(conv1_->forward(x, context), context);
    y = bn2_->forward_relu(conv2_->forward(y, context), context);
    if (downsample_ != nullptr) x = downsample_->forward(std::move(x), context);
    // Called last, so that it runs first in the backward pass and takes the norm's gradient in
    // slices.
    y = conv3_->forward(y, context);
    return bn3_->forward_add_relu(y, std::move(x), context);
  }

 private:
  std::shared_ptr<Conv2d> conv1_;
  std::shared_ptr<BatchNorm2d> bn1_;
  std::shared_ptr<Conv2d> conv2_;
  std::shared_ptr<BatchNorm2d> bn2_;
  std::shared_ptr<Conv2d> conv3_;
  std::shared_ptr<BatchNorm2d> bn3_;
  std::shared_ptr<Sequential> downsample_;
};

// `channels` is the width of the input; it becomes the width of the output.
template <class Block>
std::shared_ptr<Sequential> stage(Init& init, int64_t& channels, int64_t planes, int64_t depth,
                                  int64_t stride, int64_t width_factor) {
  auto blocks = std::make_shared<Sequential>();
  for (int64_t i = 0; i < depth; ++i) {
    blocks->append(
        std::make_shared<Block>(init, channels, planes, i == 0 ? stride : 1, width_factor));
    channels = planes * Block::kExpansion;
  }
  return blocks;
}

}  // namespace

ResNetOptions resnet_options(const std::string& name) {
  static const std::map<std::string, ResNetOptions> known = {
      {"resnet18", {{2, 2, 2, 2}, false}},
      {"resnet34", {{3, 4, 6, 3}, false}},
      {"resnet50", {{3, 4, 6, 3}, true}},
      {"resnet101", {{3, 4, 23, 3}, true}},
      {"resnet152", {{3, 8, 36, 3}, true}},
      {"wide_resnet50_2", {{3, 4, 6, 3}, true, 2}},
      {"wide_resnet101_2", {{3, 4, 23, 3}, true, 2}},
  };
  const auto found = known.find(name);
  if (found != known.end()) return found->second;
  std::string names;
  for (const auto& [each, options] : known) names += (names.empty() ? "" : ", ") + each;
  throw Error(fmt::format("[resnet] expected one of {}, got '{}'", names, name));
}

ResNet::ResNet(Init& init, const ResNetOptions& options) : stem_(options.stem) {
  const bool imagenet = stem_ == Stem::imagenet;
  conv1_ = register_module(
      "conv1", conv_same(init, options.in_channels, 64, imagenet ? 7 : 3, imagenet ? 2 : 1, kInit));
  bn1_ = register_module("bn1", std::make_shared<BatchNorm2d>(init, 64));
  int64_t channels = 64;
  for (size_t s = 0; s < 4; ++s) {
    const int64_t planes = int64_t{64} << s, stride = s == 0 ? 1 : 2;
    layers_[s] = options.bottleneck
                     ? stage<Bottleneck>(init, channels, planes, options.depths[s], stride,
                                         options.width_factor)
                     : stage<BasicBlock>(init, channels, planes, options.depths[s], stride, 1);
    register_module("layer" + std::to_string(s + 1), layers_[s]);
  }
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
  return fc_->forward(global_avg_pool2d(y), context);
}

}  // namespace frugal::models
