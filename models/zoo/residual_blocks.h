// The two blocks of residual networks, with torchvision's parameter names.
// Ref: He et al. 2016. The stride of a bottleneck is on its 3x3 convolution.
#pragma once
#include "models/layers.h"

namespace frugal::models {

// relu(x + bn2(conv2(relu(bn1(conv1(x)))))) with 3x3 convolutions, of `width` channels between
// them. [N, H, W, in] -> [N, OH, OW, out]. Where the shape changes, x goes through a 1x1
// convolution and a norm, "downsample". `dilation` is that of all 3x3 convolutions.
class BasicBlock : public Module {
 public:
  BasicBlock(Init& init, int64_t in, int64_t out, int64_t stride, int64_t width,
             int64_t dilation = 1);
  Variable forward(Variable x, Context& context) override;

 private:
  std::shared_ptr<Conv2d> conv1_;
  std::shared_ptr<BatchNorm2d> bn1_;
  std::shared_ptr<Conv2d> conv2_;
  std::shared_ptr<BatchNorm2d> bn2_;
  std::shared_ptr<Sequential> downsample_;
};

// In ResNets with bottlenecks: inner channels of the first stage, and how many times wider the
// output of a block is than its inside.
inline constexpr int64_t kBottleneckChannels = 64, kExpansion = 4;

// A block like BasicBlock, with convolutions 1x1, 3x3 and 1x1. The first two have `width` channels.
class Bottleneck : public Module {
 public:
  Bottleneck(Init& init, int64_t in, int64_t out, int64_t stride, int64_t width,
             int64_t dilation = 1);
  Variable forward(Variable x, Context& context) override;

 private:
  std::shared_ptr<Conv2d> conv1_;
  std::shared_ptr<BatchNorm2d> bn1_;
  std::shared_ptr<Conv2d> conv2_;
  std::shared_ptr<BatchNorm2d> bn2_;
  std::shared_ptr<Conv2d> conv3_;
  std::shared_ptr<BatchNorm2d> bn3_;
  std::shared_ptr<Sequential> downsample_;
};

// The dilations of a stage: of its first block and of the others.
struct StageDilation {
  int64_t first = 1, others = 1;
};

// `depth` blocks, the first of them with `stride`. `channels`: of the input, then of the output.
template <class Block>
std::shared_ptr<Sequential> residual_stage(Init& init, int64_t& channels, int64_t out,
                                           int64_t depth, int64_t stride, int64_t width,
                                           const StageDilation& dilation = {}) {
  auto blocks = std::make_shared<Sequential>();
  for (int64_t i = 0; i < depth; ++i) {
    blocks->append(std::make_shared<Block>(init, channels, out, i == 0 ? stride : 1, width,
                                           i == 0 ? dilation.first : dilation.others));
    channels = out;
  }
  return blocks;
}

}  // namespace frugal::models
