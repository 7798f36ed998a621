// The residual networks for 32x32 images: resnet20/32/44/56/110 and preact_resnet56.
// Ref: He et al. 2016 (section 4.2); He et al. 2016, Identity Mappings.
#pragma once
#include <array>
#include <string>

#include "models/layers.h"
#include "models/zoo/keys.h"

namespace frugal::models {

// How the input of a block reaches its output where the shape changes.
enum class Shortcut : uint8_t {
  A,  // every second pixel, and zeros for the new channels: no parameters
  B,  // a strided 1x1 convolution and a norm
};

struct CifarResNetOptions {
  int64_t blocks = 3;  // blocks of each stage; layers = 6 * blocks + 2
  int64_t width = 16;  // channels of the first stage; each later stage has twice as many
  Shortcut shortcut = Shortcut::A;
  bool preact = false;
  int64_t in_channels = 3;
  int64_t num_classes = 10;  // 0: no last layer, the network gives features

  static const Published<CifarResNetOptions>& published();
  static void set_layers(CifarResNetOptions& options, const Value& layers);
  static void set_sizes(Sizes& sizes, const CifarResNetOptions&) {
    sizes.least_layers = 8;
    sizes.layers_step = 6;
  }
  static std::vector<Option<CifarResNetOptions>> list() {
    return {{{"shortcut", range::choice("A, B"),
              "CIFAR ResNets: A pads with zero channels, B projects."},
             &CifarResNetOptions::shortcut},
            {keys::kLayers, set_layers},
            {keys::kWidth, &CifarResNetOptions::width},
            {keys::kInChannels, &CifarResNetOptions::in_channels},
            {keys::kClassesOrFeatures, &CifarResNetOptions::num_classes}};
  }
};

// The options of "resnet20", "resnet32", "resnet44", "resnet56", "resnet110", "preact_resnet56".
// Errors: an unknown name; the message lists the known ones.
CifarResNetOptions cifar_resnet_options(const std::string& name);

// [N, H, W, in_channels] -> [N, num_classes], or [N, features]. Names: conv1, bn1,
// layer{1,2,3}.{i}.{conv1,bn1,conv2,bn2}, linear; with shortcut B also shortcut.0 and its norm
// shortcut.1. In the preact network a block has {bn1,conv1,bn2,conv2}, there is no bn1 after conv1,
// and a norm `bn` stands before linear.
class CifarResNet : public Module {
 public:
  CifarResNet(Init& init, const CifarResNetOptions& options);
  Variable forward(Variable x, Context& context) override;

 private:
  std::shared_ptr<Conv2d> conv1_;
  std::shared_ptr<BatchNorm2d> bn1_;  // the first norm; in preact networks the last one, `bn`
  std::array<std::shared_ptr<Sequential>, 3> layers_;
  std::shared_ptr<Linear> linear_;
  bool preact_;
};

}  // namespace frugal::models
