// The convolutions of a bottleneck ResNet without its classifier, for networks that need the
// features of several resolutions. Ref: He et al. 2016; Yu & Koltun 2016 (dilation).
#pragma once
#include <array>

#include "models/layers.h"

namespace frugal::models {

struct ResNetTrunkOptions {
  std::array<int64_t, 4> depths{3, 4, 6, 3};  // blocks in each stage
  int64_t in_channels = 3;
  int64_t width = 64;  // channels of the stem; the stages give 4, 8, 16 and 32 times as many
  // Three 3x3 convolutions instead of one of 7x7: "stem", of mmsegmentation's ResNetV1c. Ref: He et
  // al. 2019.
  bool deep_stem = false;
  // Does dilation take the place of the stride in stages 2, 3 and 4? (torchvision's
  // replace_stride_with_dilation)
  std::array<bool, 3> dilated{false, false, false};
};

// [N, H, W, in_channels] -> features of 256, 512, 1024 and 2048 channels (with the usual width), at
// a 4th, 8th, 16th and 32nd of the resolution; a dilated stage keeps the resolution of the stage
// before it.
// Names: conv1 and bn1 (or stem), layer1 to layer4.
class ResNetTrunk : public Module {
 public:
  static constexpr size_t kStages = 4;
  using Wanted = std::array<bool, kStages>;

  ResNetTrunk(Init& init, const ResNetTrunkOptions& options);
  // The features of the wanted stages; the others are undefined and are released early.
  Variables stages(Variable x, Context& context, const Wanted& wanted);
  Variable forward(Variable x, Context& context) override;  // the features of the last stage
  int64_t channels(size_t stage) const { return 4 * width_ << stage; }

 private:
  int64_t width_;
  std::shared_ptr<Conv2d> conv1_;
  std::shared_ptr<BatchNorm2d> bn1_;
  std::shared_ptr<Sequential> stem_;  // null: conv1 and bn1
  std::array<std::shared_ptr<Sequential>, kStages> layers_;
};

}  // namespace frugal::models
