// torchvision's vision transformers, with its parameter names. Ref: Dosovitskiy et al. 2021.
#pragma once
#include <string>
#include <vector>

#include "models/dense.h"
#include "models/transformer_layers.h"
#include "models/zoo/keys.h"

namespace frugal::models {

struct VitOptions {
  int64_t patch = 16;
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t hidden = 768;
  int64_t mlp = 0;  // 0: 4 times hidden
  int64_t image = 224;
  int64_t in_channels = 3;
  int64_t num_classes = 1000;
  double dropout = 0;  // after the embeddings, after the two branches of a block, and after gelu
  double attention_dropout = 0;
  // Probability that the last block leaves out a branch for a sample, as drop_path of timm; it
  // grows linearly from 0 at the first block.
  double stochastic_depth = 0;

  static const Published<VitOptions>& published();
  static void set_sizes(Sizes& sizes, const VitOptions& options) {
    sizes.side_step = options.patch;
  }
  static std::vector<Option<VitOptions>> list() {
    return {{keys::kLayers, &VitOptions::layers},
            {keys::kWidth, &VitOptions::hidden},
            {keys::kHeads, &VitOptions::heads},
            {keys::kFeedForward, &VitOptions::mlp},
            {keys::kDropout, &VitOptions::dropout},
            {keys::kAttentionDropout, &VitOptions::attention_dropout},
            {keys::kStochasticDepth, &VitOptions::stochastic_depth},
            {{"image", range::integer(1, 1 << 20), "Height and width of images.", Key::data},
             &VitOptions::image},
            {keys::kInChannels, &VitOptions::in_channels},
            {keys::kNumClasses, &VitOptions::num_classes}};
  }
};

// The options of "vit_b_16", "vit_b_32", "vit_l_16", "vit_l_32", "vit_h_14".
// Errors: an unknown name; the message lists the known ones.
VitOptions vit_options(const std::string& name);

// [N, image, image, in_channels] -> [N, num_classes]. Errors: images of another size; an image size
// that is not a multiple of the patch size; heads that do not divide the width.
class Vit : public Module {
 public:
  Vit(Init& init, const VitOptions& options);
  Variable forward(Variable x, Context& context) override;

 private:
  class Layer;
  VitOptions options_;
  Variable class_token_, positions_;
  std::shared_ptr<FilledConv2d> patches_;
  std::vector<std::shared_ptr<Layer>> layers_;
  std::shared_ptr<LayerNorm> norm_;
  std::shared_ptr<Dense> head_;
};

}  // namespace frugal::models
