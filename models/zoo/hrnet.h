// High-resolution networks with a head for each pixel: hrnet_w18, hrnet_w32, hrnet_w48. Parameter
// names are those of the authors' public program for semantic segmentation.
// Ref: Wang et al. 2020, "Deep High-Resolution Representation Learning for Visual Recognition".
#pragma once
#include <string>
#include <vector>

#include "models/layers.h"
#include "models/resized_module.h"
#include "models/zoo/keys.h"

namespace frugal::models {

struct HrNetOptions {
  int64_t width = 48;  // channels of the branch with the highest resolution
  int64_t in_channels = 3;
  int64_t num_classes = 19;

  static const Published<HrNetOptions>& published();
  static std::vector<Option<HrNetOptions>> list() {
    return {{keys::kInChannels, &HrNetOptions::in_channels},
            {keys::kNumClasses, &HrNetOptions::num_classes}};
  }
};

// The options of "hrnet_w18", "hrnet_w32" or "hrnet_w48". Errors: an unknown name; the message
// lists the known ones.
HrNetOptions hrnet_options(const std::string& name);

// [N, H, W, in_channels] -> [N, H, W, num_classes]. Branches work at a 4th, 8th, 16th and 32nd of
// the resolution, and outputs are interpolated bilinearly from a 4th.
class HrNet : public ResizedModule {
 public:
  HrNet(Init& init, const HrNetOptions& options);
  Small before_resize(Variable x, Context& context) override;
  std::string head_prefix() override { return "last_layer.3."; }

 private:
  // The modules of one stage, and what makes the inputs of its branches from the stage before.
  struct Stage {
    // One for each branch. Null: the branch goes on as it is.
    std::vector<std::shared_ptr<Sequential>> transitions;
    std::vector<std::shared_ptr<Module>> modules;
  };
  std::shared_ptr<Conv2d> conv1_, conv2_;
  std::shared_ptr<BatchNorm2d> bn1_, bn2_;
  std::shared_ptr<Sequential> layer1_, last_layer_;
  std::vector<Stage> stages_;
};

}  // namespace frugal::models
