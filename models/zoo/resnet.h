// torchvision's residual networks: resnet18/34/50/101/152 and the wide ones, with its parameter
// names. Ref: He et al. 2016; Zagoruyko & Komodakis 2016. The stride of a bottleneck is on its 3x3
// convolution.
#pragma once
#include <array>

#include "models/layers.h"
#include "models/zoo/keys.h"

namespace frugal::models {

enum class Stem : uint8_t {
  imagenet,  // 7x7 convolution of stride 2 and 3x3 max-pool of stride 2
  cifar,     // 3x3 convolution of stride 1, no pool
};

struct ResNetOptions {
  std::array<int64_t, 4> depths{2, 2, 2, 2};  // blocks in each stage
  bool bottleneck = false;
  // Inner channels of a block in the first stage; each later stage has twice as many. A bottleneck
  // gives 4 * 64 channels in the first stage, whatever its inner width is, so the width is
  // torchvision's width_per_group: 128 in the wide networks. Without bottlenecks a block gives as
  // many channels as it has inside, and so does the stem.
  int64_t width = 64;
  int64_t in_channels = 3;
  int64_t num_classes = 1000;  // 0: no last layer, the network gives features
  Stem stem = Stem::imagenet;

  static const Published<ResNetOptions>& published();
  static void set_layers(ResNetOptions& options, const Value& layers);  // deepen()
  static void set_sizes(Sizes& sizes, const ResNetOptions& options);
  static std::vector<Option<ResNetOptions>> list() {
    return {{{"stem", range::choice("imagenet, cifar"),
              "resnet18 and larger: 7x7 stride 2 and a pool, or 3x3 stride 1 for small images."},
             &ResNetOptions::stem},
            {keys::kLayers, set_layers},
            {keys::kWidth, &ResNetOptions::width},
            {keys::kInChannels, &ResNetOptions::in_channels},
            {keys::kClassesOrFeatures, &ResNetOptions::num_classes}};
  }
};

// The options of "resnet18", ..., "wide_resnet101_2". Errors: an unknown name; the message lists
// the known ones.
ResNetOptions resnet_options(const std::string& name);

int64_t layers_of_block(const ResNetOptions& options);  // 3 of a bottleneck, 2 of another block
int64_t layers_of(const ResNetOptions& options);        // all, also the first and the last one
// Adds blocks until the network has `layers` layers. The new blocks belong to the second and the
// third stage, in proportion to the blocks that these have: of the n blocks added to [a, b, c, d],
// floor(n * b / (b + c)) belong to the second stage. So the public code of ActNN and of GACT
// deepens ResNet-152. Errors: fewer layers than the network has; a number that no network of such
// blocks has.
void deepen(ResNetOptions& options, int64_t layers);

// [N, H, W, in_channels] -> [N, num_classes], or [N, features]: the means over the positions.
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
