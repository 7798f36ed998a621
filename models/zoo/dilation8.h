// Dilation8: a VGG-16 front end whose last layers are dilated, and a context module, with an output
// for each pixel and the layer names of the authors' public program.
// Ref: Yu & Koltun 2016, "Multi-Scale Context Aggregation by Dilated Convolutions", table 1
// (basic).
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "models/layers.h"
#include "models/resized_module.h"
#include "models/zoo/keys.h"

namespace frugal::models {

struct Dilation8Options {
  int64_t in_channels = 3;
  int64_t num_classes = 21;
  int64_t hidden = 4096;  // channels of fc6 and fc7
  double dropout = 0.5;   // after fc6 and fc7

  static Published<Dilation8Options> published() { return {{"dilation8", {}}}; }
  static std::vector<Option<Dilation8Options>> list() {
    return {{keys::kWidth, &Dilation8Options::hidden},
            {keys::kDropout, &Dilation8Options::dropout},
            {keys::kInChannels, &Dilation8Options::in_channels},
            {keys::kNumClasses, &Dilation8Options::num_classes}};
  }
};

// [N, H, W, in_channels] -> [N, H, W, num_classes]; H and W are at least 8. Images are padded with
// zeros within the network (the authors reflect a margin of 186 pixels outside of it), and outputs
// are interpolated bilinearly from an 8th of the resolution. The context module begins as the
// identity. Names: conv1_1 to conv5_3, fc6, fc7, final, ctx_conv1_1 to ctx_conv5_1, ctx_fc1,
// ctx_final.
class Dilation8 : public ResizedModule {
 public:
  Dilation8(Init& init, const Dilation8Options& options);
  Small before_resize(Variable x, Context& context) override;
  std::string head_prefix() override { return "ctx_final."; }

 private:
  enum class Then : uint8_t { relu, relu_and_pool, relu_and_dropout, nothing };
  double dropout_;
  std::vector<std::pair<std::shared_ptr<Module>, Then>> steps_;
};

}  // namespace frugal::models
