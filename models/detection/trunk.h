// A residual network that gives the features of its stages, and the pyramid on top of it, with
// torchvision's parameter names.
// Ref: Lin et al. 2017 (Feature Pyramid Networks); torchvision's resnet_fpn_backbone.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "models/dense.h"
#include "models/layers.h"
#include "models/zoo/resnet.h"

namespace frugal::models {

// The options of one of torchvision's ResNets. Errors: OptionError at "trunk".
ResNetOptions trunk_options(const std::string& name);

// What follows the levels that come from the trunk.
enum class LastLevels : uint8_t {
  p6_p7,     // two 3x3 convolutions of stride 2, the second behind a relu (RetinaNet)
  max_pool,  // every second pixel of the last level (Faster R-CNN)
};

struct PyramidOptions {
  // The trunk's own stem, in_channels and num_classes are not used.
  ResNetOptions trunk = resnet_options("resnet50");
  int64_t first_stage = 2;  // the first stage, of 1 to 4, whose features are used
  int64_t width = 256;      // channels of all levels
  int64_t in_channels = 3;
  LastLevels last = LastLevels::p6_p7;
};

// Children: body (conv1, bn1, layer1 to layer4) and fpn (inner_blocks.N.0, layer_blocks.N.0,
// extra_blocks.p6, .p7).
class Pyramid : public Module {
 public:
  Pyramid(Init& init, const PyramidOptions& options);
  // [N, H, W, in_channels] -> maps [N, h, w, width], finest first. A side of a map is half of the
  // one before, rounded up.  Errors: pictures without pixels.
  Variables levels(Variable x, Context& context);
  Variable forward(Variable x, Context& context) override;  // the finest level

 private:
  PyramidOptions options_;
  std::shared_ptr<Conv2d> conv1_;
  std::shared_ptr<BatchNorm2d> bn1_;
  std::array<std::shared_ptr<Sequential>, 4> layers_;
  std::vector<std::shared_ptr<FilledConv2d>> inner_, outer_, extra_;
};

// A convolution with "same" padding, a bias of zeros, and weights of N(0, deviation^2).
std::shared_ptr<FilledConv2d> normal_conv(Init& init, int64_t in, int64_t out, int64_t kernel,
                                          double deviation = 0.01, double bias = 0);

}  // namespace frugal::models
