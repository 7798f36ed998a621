// torchvision's AlexNet, with its parameter names. Ref: Krizhevsky 2014, "One weird trick for
// parallelizing convolutional neural networks", footnote 1.
#pragma once
#include <array>

#include "models/layers.h"
#include "models/zoo/keys.h"

namespace frugal::models {

struct AlexNetOptions {
  int64_t hidden = 4096;  // width of the classifier's inner layers
  double dropout = 0.5;   // before the classifier's first two layers
  int64_t in_channels = 3;
  int64_t num_classes = 1000;

  static Published<AlexNetOptions> published() { return {{"alexnet", {}}}; }
  static std::vector<Option<AlexNetOptions>> list() {
    return {{keys::kWidth, &AlexNetOptions::hidden},
            {keys::kDropout, &AlexNetOptions::dropout},
            {keys::kInChannels, &AlexNetOptions::in_channels},
            {keys::kNumClasses, &AlexNetOptions::num_classes}};
  }
};

// [N, H, W, in_channels] -> [N, num_classes]; H and W are at least 63.
// Names: features.{0,3,6,8,10}, classifier.{1,4,6}.
class AlexNet : public Module {
 public:
  AlexNet(Init& init, const AlexNetOptions& options);
  Variable forward(Variable x, Context& context) override;

 private:
  double dropout_;
  std::array<std::shared_ptr<Conv2d>, 5> features_;
  std::array<std::shared_ptr<Linear>, 3> classifier_;
};

}  // namespace frugal::models
