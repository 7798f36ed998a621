// torchvision's DenseNet-121/161/169/201, with its parameter names. Ref: Huang et al. 2017, table
// 1.
//
// Batch norm treats each channel alone. So every layer here normalises its inputs one by one and
// concatenates the results. The norms then keep the outputs of the layers, each once, however many
// later layers read it. Implementations that concatenate first keep one concatenation for each
// layer, and their memory grows with the square of the depth.
#pragma once
#include <array>
#include <string>

#include "models/dense.h"
#include "models/layers.h"
#include "models/zoo/keys.h"

namespace frugal::models {

struct DenseNetOptions {
  std::array<int64_t, 4> depths{6, 12, 24, 16};  // number of layers of each block
  int64_t growth = 32;                           // channels that each layer adds
  int64_t stem_channels = 64;
  int64_t bottleneck = 4;  // channels inside a layer, as a multiple of growth
  double dropout = 0;      // after each layer
  int64_t in_channels = 3;
  int64_t num_classes = 1000;

  static const Published<DenseNetOptions>& published();
  static std::vector<Option<DenseNetOptions>> list() {
    return {{keys::kDropout, &DenseNetOptions::dropout},
            {keys::kInChannels, &DenseNetOptions::in_channels},
            {keys::kNumClasses, &DenseNetOptions::num_classes}};
  }
};

// The options of "densenet121", "densenet161", "densenet169", "densenet201".
// Errors: an unknown name; the message lists the known ones.
DenseNetOptions densenet_options(const std::string& name);

// [N, H, W, in_channels] -> [N, num_classes], H and W at least 32. Names: features.conv0,
// features.norm0, features.denseblock{1..4}.denselayer{i}.{norm1,conv1,norm2,conv2},
// features.transition{1..3}.{norm,conv}, features.norm5, classifier.
class DenseNet : public Module {
 public:
  DenseNet(Init& init, const DenseNetOptions& options);
  Variable forward(Variable x, Context& context) override;

 private:
  class Features;
  std::shared_ptr<Features> features_;
  std::shared_ptr<Dense> classifier_;
};

}  // namespace frugal::models
