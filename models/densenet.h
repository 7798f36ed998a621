// torchvision's DenseNet-121/161/169/201, with its parameter names. Ref: Huang et al. 2017,
// table 1.
//
// A norm normalises each channel alone, so here every layer normalises its inputs one by one and
// concatenates the results: what the norms keep are the layers' outputs, each once, however many
// layers read it. Others keep a concatenation for each layer, which grows with the depth squared.
#pragma once
#include <array>
#include <string>

#include "models/dense.h"
#include "models/layers.h"

namespace frugal::models {

struct DenseNetOptions {
  std::array<int64_t, 4> depths{6, 12, 24, 16};  // layers of each block
  int64_t growth = 32;                           // channels that a layer adds
  int64_t stem_channels = 64;
  int64_t bottleneck = 4;  // channels within a layer, times growth
  double dropout = 0;      // of a layer's output
  int64_t in_channels = 3;
  int64_t num_classes = 1000;
};

// The options of "densenet121", "densenet161", "densenet169", "densenet201".
// Errors: unknown name, listing the known ones.
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
