#include "models/zoo/residual_blocks.h"

namespace frugal::models {
namespace {

constexpr ConvInit kBlockInit = ConvInit::kaiming_fan_out;

// A 3x3 convolution that keeps the size of the image, but for its stride.
std::shared_ptr<Conv2d> conv3x3(Init& init, int64_t in, int64_t out, int64_t stride,
                                int64_t dilation) {
  Conv2dOptions options;
  options.stride = {stride, stride};
  options.padding = options.dilation = {dilation, dilation};
  return std::make_shared<Conv2d>(init, in, out, 3, options, false, kBlockInit);
}

// A projection of the block's input if its shape changes, else null.
std::shared_ptr<Sequential> downsample(Init& init, int64_t in, int64_t out, int64_t stride) {
  if (stride == 1 && in == out) return nullptr;
  auto projection = std::make_shared<Sequential>();
  projection->append(conv_same(init, in, out, 1, stride, kBlockInit));
  projection->append(std::make_shared<BatchNorm2d>(init, out));
  return projection;
}

}  // namespace

BasicBlock::BasicBlock(Init& init, int64_t in, int64_t out, int64_t stride, int64_t width,
                       int64_t dilation)
    : conv1_(register_module("conv1", conv3x3(init, in, width, stride, dilation))),
      bn1_(register_module("bn1", std::make_shared<BatchNorm2d>(init, width))),
      conv2_(register_module("conv2", conv3x3(init, width, out, 1, dilation))),
      bn2_(register_module("bn2", std::make_shared<BatchNorm2d>(init, out))),
      downsample_(downsample(init, in, out, stride)) {
  if (downsample_ != nullptr) register_module("downsample", downsample_);
}

Variable BasicBlock::forward(Variable x, Context& context) {
  Variable y = bn1_->forward_relu(conv1_->forward(x, context), context);
  if (downsample_ != nullptr) x = downsample_->forward(std::move(x), context);
  // Called last, so that it runs first in the backward pass and takes the norm's gradient in
  // slices.
  y = conv2_->forward(std::move(y), context);
  return bn2_->forward_add_relu(y, std::move(x), context);
}

Bottleneck::Bottleneck(Init& init, int64_t in, int64_t out, int64_t stride, int64_t width,
                       int64_t dilation)
    : conv1_(register_module("conv1", conv_same(init, in, width, 1, 1, kBlockInit))),
      bn1_(register_module("bn1", std::make_shared<BatchNorm2d>(init, width))),
      conv2_(register_module("conv2", conv3x3(init, width, width, stride, dilation))),
      bn2_(register_module("bn2", std::make_shared<BatchNorm2d>(init, width))),
      conv3_(register_module("conv3", conv_same(init, width, out, 1, 1, kBlockInit))),
      bn3_(register_module("bn3", std::make_shared<BatchNorm2d>(init, out))),
      downsample_(downsample(init, in, out, stride)) {
  if (downsample_ != nullptr) register_module("downsample", downsample_);
}

Variable Bottleneck::forward(Variable x, Context& context) {
  Variable y = bn1_->forward_relu(conv1_->forward(x, context), context);
  // The second convolution's input is released before its norm runs.
  y = conv2_->forward(std::move(y), context);
  y = bn2_->forward_relu(std::move(y), context);
  if (downsample_ != nullptr) x = downsample_->forward(std::move(x), context);
  // The last convolution is called here, so that it runs first in the backward pass and takes the
  // norm's gradient in slices.
  return bn3_->forward_add_relu(*conv3_, std::move(y), std::move(x), context);
}

}  // namespace frugal::models
