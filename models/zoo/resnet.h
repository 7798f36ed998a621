// torchvision's residual networks: resnet18/34/50/101/152 and the wide ones, with its parameter
// names. Ref: He et al. 2016; Zagoruyko & Komodakis 2016. The stride of a bottleneck is on its 3x3
// convolution.
#pragma once
#include <array>

#include "models/layers.h"

namespace frugal::models {

enum class Stem : uint8_t {
  imagenet,  // 7x7 convolution of stride 2 and 3x3 max-pool of stride 2
  cifar,     // 3x3 convolution of stride 1, no pool
};

struct ResNetOptions {
  std::array<int64_t, 4> depths{2, 2, 2, 2};
  bool bottleneck = false;
  int64_t width_factor = 1;  // multiplies the inner width of a bottleneck; 2 in the wide networks
  int64_t in_channels = 3;
  int64_t num_classes = 1000;
  Stem stem = Stem::imagenet;
};

// The options of "resnet18", ..., "wide_resnet101_2". Errors: an unknown name; the message lists
// the known ones.
ResNetOptions resnet_options(const std::string& name);

// [N, H, W, in_channels] -> [N, num_classes]
class ResNet : public Module {
 public:
  ResNet(Init& init, const ResNetOptions& options);
  Variable forward(Variable x, Context& context) override;

 private:
  Stem stem_;
  std::shared_ptr<Conv2d> conv1_;
  std::shared_ptr<BatchNorm2d> bn1_;
  std::array<std::shared_ptr<Sequential>, 4> layers_;
  std::shared_ptr<Linear> fc_;
};

}  // namespace frugal::models
