// torchvision's networks on a dilated ResNet: fcn_resnet50, fcn_resnet101, deeplabv3_resnet50,
// deeplabv3_resnet101, with its parameter names.
// Ref: Long et al. 2015 (FCN); Chen et al. 2017, "Rethinking Atrous Convolution" (DeepLabv3).
#pragma once
#include <array>
#include <string>

#include "models/layers.h"
#include "models/resized_module.h"
#include "models/zoo/keys.h"
#include "models/zoo/resnet_trunk.h"

namespace frugal::models {

enum class DilatedHead : uint8_t { fcn, deeplabv3 };

struct DilatedResNetOptions {
  DilatedHead head = DilatedHead::fcn;
  std::array<int64_t, 4> depths{3, 4, 6, 3};
  int64_t width = 64;  // channels of the trunk's stem
  int64_t in_channels = 3;
  int64_t num_classes = 21;
  double dropout = 0.1;            // before the last layer, or behind the pyramid of DeepLabv3
  bool auxiliary = false;          // a second head, "aux_classifier", on the third stage
  double auxiliary_dropout = 0.1;  // before the last layer of the second head

  static const Published<DilatedResNetOptions>& published();
  static std::vector<Option<DilatedResNetOptions>> list() {
    return {{keys::kWidth, &DilatedResNetOptions::width},
            {keys::kDropout,
             [](DilatedResNetOptions& options, const Value& value) {
               options.dropout = options.auxiliary_dropout = value.number();
             }},
            {{"aux_loss", range::flag(),
              "fcn_resnet50 to deeplabv3_resnet101: a second head on the third stage, whose loss "
              "counts half in training, and which nothing else runs."},
             &DilatedResNetOptions::auxiliary},
            {keys::kInChannels, &DilatedResNetOptions::in_channels},
            {keys::kNumClasses, &DilatedResNetOptions::num_classes}};
  }
};

// The options of "fcn_resnet50", ..., "deeplabv3_resnet101". Errors: an unknown name; the message
// lists the known ones.
DilatedResNetOptions dilated_resnet_options(const std::string& name);

// [N, H, W, in_channels] -> [N, H, W, num_classes]. The trunk gives an 8th of the resolution;
// outputs are interpolated bilinearly from there. Names: backbone, classifier, aux_classifier.
class DilatedResNet : public ResizedModule {
 public:
  DilatedResNet(Init& init, const DilatedResNetOptions& options);

  Small before_resize(Variable x, Context& context) override;
  std::string head_prefix() override { return "classifier.4."; }
  std::string auxiliary_head_prefix() override {
    return auxiliary_ == nullptr ? "" : "aux_classifier.4.";
  }

 private:
  std::shared_ptr<ResNetTrunk> backbone_;
  std::shared_ptr<Sequential> classifier_, auxiliary_;  // auxiliary: may be null
};

}  // namespace frugal::models
