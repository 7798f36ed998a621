// torchvision's VGG-11/13/16/19, with and without batch normalisation, with its parameter names.
// Ref: Simonyan & Zisserman 2015, table 1 (A, B, D, E).
#pragma once
#include <array>
#include <string>

#include "models/dense.h"
#include "models/layers.h"
#include "models/zoo/keys.h"

namespace frugal::models {

struct VggOptions {
  std::array<int64_t, 5> depths{1, 1, 2, 2, 2};  // convolutions before each max-pool
  int64_t width = 64;  // channels of the first stage; the others have 2, 4, 8 and 8 times as many
  bool batch_norm = false;
  int64_t hidden = 4096;  // width of the classifier's inner layers
  double dropout = 0.5;
  int64_t in_channels = 3;
  int64_t num_classes = 1000;

  static const Published<VggOptions>& published();
  static std::vector<Option<VggOptions>> list() {
    return {{keys::kWidth, &VggOptions::hidden},
            {keys::kDropout, &VggOptions::dropout},
            {keys::kInChannels, &VggOptions::in_channels},
            {keys::kNumClasses, &VggOptions::num_classes}};
  }
};

// The options of "vgg11", "vgg13", "vgg16", "vgg19" and the same names with "_bn".
// Errors: an unknown name; the message lists the known ones.
VggOptions vgg_options(const std::string& name);

// [N, H, W, in_channels] -> [N, num_classes]; H and W are at least 32.
// Names: features.{i}, classifier.{0,3,6}.
class Vgg : public Module {
 public:
  Vgg(Init& init, const VggOptions& options);
  Variable forward(Variable x, Context& context) override;

 private:
  class Layer;
  using Stage = std::vector<std::shared_ptr<Layer>>;
  double dropout_;
  std::array<std::shared_ptr<Stage>, 5> stages_;
  std::array<std::shared_ptr<Dense>, 3> classifier_;
};

}  // namespace frugal::models
