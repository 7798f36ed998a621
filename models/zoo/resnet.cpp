#include "models/zoo/resnet.h"

#include <map>
#include <numeric>

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
  BasicBlock(Init& init, int64_t in, int64_t out, int64_t stride, int64_t width)
      : conv1_(register_module("conv1", conv_same(init, in, width, 3, stride, kInit))),
        bn1_(register_module("bn1", std::make_shared<BatchNorm2d>(init, width))),
        conv2_(register_module("conv2", conv_same(init, width, out, 3, 1, kInit))),
        bn2_(register_module("bn2", std::make_shared<BatchNorm2d>(init, out))),
        downsample_(downsample(init, in, out, stride)) {
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
  Bottleneck(Init& init, int64_t in, int64_t out, int64_t stride, int64_t width)
      : conv1_(register_module("conv1", conv_same(init, in, width, 1, 1, kInit))),
        bn1_(register_module("bn1", std::make_shared<BatchNorm2d>(init, width))),
        conv2_(register_module("conv2", conv_same(init, width, width, 3, stride, kInit))),
        bn2_(register_module("bn2", std::make_shared<BatchNorm2d>(init, width))),
        conv3_(register_module("conv3", conv_same(init, width, out, 1, 1, kInit))),
        bn3_(register_module("bn3", std::make_shared<BatchNorm2d>(init, out))),
        downsample_(downsample(init, in, out, stride)) {
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

// `channels`: of the input, then of the output.
template <class Block>
std::shared_ptr<Sequential> stage(Init& init, int64_t& channels, int64_t out, int64_t depth,
                                  int64_t stride, int64_t width) {
  auto blocks = std::make_shared<Sequential>();
  for (int64_t i = 0; i < depth; ++i) {
    blocks->append(std::make_shared<Block>(init, channels, out, i == 0 ? stride : 1, width));
    channels = out;
  }
  return blocks;
}

constexpr int64_t kChannels = 64, kExpansion = 4;

}  // namespace

ResNetOptions resnet_options(const std::string& name) {
  static const std::map<std::string, ResNetOptions> known = {
      {"resnet18", {{2, 2, 2, 2}, false}},
      {"resnet34", {{3, 4, 6, 3}, false}},
      {"resnet50", {{3, 4, 6, 3}, true}},
      {"resnet101", {{3, 4, 23, 3}, true}},
      {"resnet152", {{3, 8, 36, 3}, true}},
      {"wide_resnet50_2", {{3, 4, 6, 3}, true, 128}},
      {"wide_resnet101_2", {{3, 4, 23, 3}, true, 128}},
  };
  const auto found = known.find(name);
  if (found != known.end()) return found->second;
  std::string names;
  for (const auto& [each, options] : known) names += (names.empty() ? "" : ", ") + each;
  throw Error(fmt::format("[resnet] expected one of {}, got '{}'", names, name));
}

int64_t layers_of_block(const ResNetOptions& options) { return options.bottleneck ? 3 : 2; }

int64_t layers_of(const ResNetOptions& options) {
  const auto& depths = options.depths;
  return layers_of_block(options) * std::accumulate(depths.begin(), depths.end(), int64_t{0}) + 2;
}

void deepen(ResNetOptions& options, int64_t layers) {
  const int64_t each = layers_of_block(options), more = layers - layers_of(options);
  FRUGAL_CHECK(more >= 0 && more % each == 0,
               "[resnet] expected {} layers, or more by a multiple of {}, got {}",
               layers_of(options), each, layers);
  auto& depths = options.depths;
  const int64_t added = more / each;
  const int64_t second = added * depths[1] / (depths[1] + depths[2]);
  depths[1] += second;
  depths[2] += added - second;
}

ResNet::ResNet(Init& init, const ResNetOptions& options) : stem_(options.stem) {
  const bool imagenet = stem_ == Stem::imagenet;
  int64_t channels = options.bottleneck ? kChannels : options.width;
  conv1_ = register_module("conv1", conv_same(init, options.in_channels, channels, imagenet ? 7 : 3,
                                              imagenet ? 2 : 1, kInit));
  bn1_ = register_module("bn1", std::make_shared<BatchNorm2d>(init, channels));
  for (size_t s = 0; s < 4; ++s) {
    const int64_t width = options.width << s, stride = s == 0 ? 1 : 2;
    layers_[s] = options.bottleneck
                     ? stage<Bottleneck>(init, channels, kExpansion * kChannels << s,
                                         options.depths[s], stride, width)
                     : stage<BasicBlock>(init, channels, width, options.depths[s], stride, width);
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
