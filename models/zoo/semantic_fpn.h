// Semantic feature pyramid networks: fpn_resnet50, fpn_resnet101, with the parameter names of
// mmsegmentation's fpn_r50 and fpn_r101 (trunk ResNetV1c, neck FPN, FPNHead).
// Ref: Kirillov et al. 2019, "Panoptic Feature Pyramid Networks", section 3.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "models/layers.h"
#include "models/resized_module.h"
#include "models/zoo/keys.h"
#include "models/zoo/resnet_trunk.h"

namespace frugal::models {

struct SemanticFpnOptions {
  std::array<int64_t, 4> depths{3, 4, 6, 3};
  int64_t width = 64;  // channels of the trunk's stem
  int64_t in_channels = 3;
  int64_t num_classes = 19;
  double dropout = 0.1;  // drops whole channels before the last layer

  static const Published<SemanticFpnOptions>& published();
  static std::vector<Option<SemanticFpnOptions>> list() {
    return {{keys::kWidth, &SemanticFpnOptions::width},
            {keys::kDropout, &SemanticFpnOptions::dropout},
            {keys::kInChannels, &SemanticFpnOptions::in_channels},
            {keys::kNumClasses, &SemanticFpnOptions::num_classes}};
  }
};

// The options of "fpn_resnet50" or "fpn_resnet101". Errors: an unknown name; the message lists the
// known ones.
SemanticFpnOptions semantic_fpn_options(const std::string& name);

// [N, H, W, in_channels] -> [N, H, W, num_classes], interpolated bilinearly from a 4th of the
// resolution. Names: backbone, neck, decode_head.
class SemanticFpn : public ResizedModule {
 public:
  SemanticFpn(Init& init, const SemanticFpnOptions& options);
  Small before_resize(Variable x, Context& context) override;
  std::string head_prefix() override { return "decode_head.conv_seg."; }

 private:
  double dropout_;
  std::shared_ptr<ResNetTrunk> backbone_;
  // One entry for each resolution, finest first. lateral_: a 1x1 convolution to the pyramid's
  // channels. smooth_: a 3x3 convolution of the pyramid's map. scale_: the convolutions between
  // which the map is brought to the finest resolution.
  std::vector<std::shared_ptr<Module>> lateral_, smooth_;
  std::vector<std::vector<std::shared_ptr<Module>>> scale_;
  std::shared_ptr<Module> last_;
};

}  // namespace frugal::models
