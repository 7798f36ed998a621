// Dilated residual networks with an output for each pixel: drn_d_22, drn_d_38, with the parameter
// names of the authors' public program. Ref: Yu et al. 2017, "Dilated Residual Networks", figure 5.
#pragma once
#include <array>
#include <string>

#include "models/layers.h"
#include "models/zoo/keys.h"

namespace frugal::models {

struct DrnOptions {
  std::array<int64_t, 8> depths{1, 1, 2, 2, 2, 2, 1, 1};  // convolutions or blocks of levels 1 to 8
  int64_t in_channels = 3;
  int64_t num_classes = 19;

  static const Published<DrnOptions>& published();
  static std::vector<Option<DrnOptions>> list() {
    return {{keys::kInChannels, &DrnOptions::in_channels},
            {keys::kNumClasses, &DrnOptions::num_classes}};
  }
};

// The options of "drn_d_22" or "drn_d_38". Errors: an unknown name; the message lists the known
// ones.
DrnOptions drn_options(const std::string& name);

// [N, H, W, in_channels] -> [N, H, W, num_classes]. The last level has an 8th of the resolution; a
// transposed convolution with fixed bilinear weights, the buffer "up.weight" [num_classes, 1, 16,
// 16], enlarges its outputs, with zeros around the image. Names: base.0 to base.8, seg, up.
class Drn : public Module {
 public:
  Drn(Init& init, const DrnOptions& options);
  Variable forward(Variable x, Context& context) override;
  std::string head_prefix() override { return "seg."; }

 private:
  std::array<std::shared_ptr<Sequential>, 9> levels_;
  std::shared_ptr<Module> last_;
  Tensor* enlarge_;
};

}  // namespace frugal::models
