// torchvision's Swin transformers (version 1), with its parameter names. Ref: Liu et al. 2021.
#pragma once
#include <array>
#include <memory>
#include <string>

#include "models/layers.h"
#include "models/transformer_layers.h"
#include "models/zoo/keys.h"

namespace frugal::models {

struct SwinOptions {
  int64_t width = 96;  // channels of the first stage; each later stage is twice as wide
  std::array<int64_t, 4> depths{2, 2, 6, 2};
  std::array<int64_t, 4> heads{3, 6, 12, 24};
  double stochastic_depth =
      0.2;  // rate at the last block; it grows linearly from 0 at the first one
  int64_t patch = 4;
  int64_t window = 7;
  int64_t in_channels = 3;
  int64_t num_classes = 1000;
  double dropout = 0;  // after the two branches of a block, and after gelu
  double attention_dropout = 0;

  static const Published<SwinOptions>& published();
  static void set_sizes(Sizes& sizes, const SwinOptions&) {
    sizes.side_step = 32;  // 4 of a patch, and 2 of each of the three reductions
  }
  static std::vector<Option<SwinOptions>> list() {
    return {
        {keys::kDropout, &SwinOptions::dropout},
        {keys::kAttentionDropout, &SwinOptions::attention_dropout},
        {keys::kStochasticDepth, &SwinOptions::stochastic_depth},
        {{"window", range::integer(1, 64),
          "Swin: side of the windows, in patches; null: 7. With model.weights of another window "
          "the tables of relative positions are interpolated.",
          Key::own},
         &SwinOptions::window},
        {keys::kInChannels, &SwinOptions::in_channels},
        {keys::kNumClasses, &SwinOptions::num_classes}};
  }
};

// The options of "swin_t", "swin_s", "swin_b". Errors: an unknown name; the message lists the known
// ones.
SwinOptions swin_options(const std::string& name);

// [N, H, W, in_channels] -> [N, num_classes]; H and W are at least the patch size.
// Names: features.0.{0,2}, features.{1,3,5,7}.{i}.{norm1,attn,norm2,mlp.0,mlp.3},
// features.{2,4,6}.{norm,reduction}, norm, head.
class Swin : public Module {
 public:
  Swin(Init& init, const SwinOptions& options);
  Variable forward(Variable x, Context& context) override;

 private:
  class Block;
  class Merging;
  SwinOptions options_;
  std::shared_ptr<Conv2d> patches_;
  std::shared_ptr<LayerNorm> patches_norm_;
  std::array<std::vector<std::shared_ptr<Block>>, 4> blocks_;
  std::array<std::shared_ptr<Merging>, 3> mergings_;
  std::shared_ptr<LayerNorm> norm_;
  std::shared_ptr<Dense> head_;
};

}  // namespace frugal::models
