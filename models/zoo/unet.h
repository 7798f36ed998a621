// U-Net: a class for each pixel, with the parameter names of the usual PyTorch program.
// Ref: Ronneberger et al. 2015, figure 1, with padded convolutions and batch norms.
#pragma once
#include <string>
#include <vector>

#include "models/layers.h"
#include "models/zoo/keys.h"

namespace frugal::models {

struct UnetOptions {
  int64_t width = 64;  // channels at the full resolution; they double four times
  int64_t in_channels = 3;
  int64_t num_classes = 2;

  static Published<UnetOptions> published() { return {{"unet", {}}}; }
  static void set_sizes(Sizes& sizes, const UnetOptions&) {
    sizes.least_side = 16;  // four times halved
  }
  static std::vector<Option<UnetOptions>> list() {
    return {{keys::kWidth, &UnetOptions::width},
            {keys::kInChannels, &UnetOptions::in_channels},
            {keys::kNumClasses, &UnetOptions::num_classes}};
  }
};

// [N, H, W, in_channels] -> [N, H, W, num_classes]; H and W are at least 16.
// Names: inc, down1 to down4, up1 to up4, outc.
class Unet : public Module {
 public:
  Unet(Init& init, const UnetOptions& options);
  Variable forward(Variable x, Context& context) override;
  std::string head_prefix() override { return "outc.conv."; }

 private:
  std::vector<std::shared_ptr<Sequential>> down_;  // convolutions of each resolution, finest first
  std::vector<std::shared_ptr<Module>> enlarge_;   // transposed convolutions, coarsest first
  std::vector<std::shared_ptr<Sequential>> up_;
  std::shared_ptr<Conv2d> out_;
};

}  // namespace frugal::models
