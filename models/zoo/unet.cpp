#include "models/zoo/unet.h"

#include <cmath>

#include "models/activations.h"

namespace frugal::models {
namespace {

constexpr ConvInit kUnetInit = ConvInit::kaiming_fan_out;
constexpr int64_t kUnetLevels = 4;

// Two 3x3 convolutions, each with its norm and relu.
std::shared_ptr<Sequential> double_conv(Init& init, int64_t in, int64_t out) {
  auto all = std::make_shared<Sequential>();
  for (const int64_t from : {in, out}) {
    all->append(conv_same(init, from, out, 3, 1, kUnetInit));
    all->append(std::make_shared<BatchNorm2d>(init, out));
    all->append(std::make_shared<Relu>());
  }
  return all;
}

// [N, H, W, in] -> [N, 2 H, 2 W, in / 2]
class Enlarge : public Module {
 public:
  Enlarge(Init& init, int64_t in)
      : weight_(register_parameter(
            "weight", uniform(init, {in, 2, 2, in / 2}, 1 / std::sqrt(static_cast<double>(2 * in))),
            Layout::conv_weight)),
        bias_(register_parameter(
            "bias", uniform(init, {in / 2}, 1 / std::sqrt(static_cast<double>(2 * in))))) {}
  Variable forward(Variable x, Context&) override {
    ConvTranspose2dOptions options;
    options.stride = {2, 2};
    return conv_transpose2d(x, weight_, bias_, options);
  }

 private:
  Variable weight_, bias_;
};

// `x` with zeros around it, of the extents of `like`.
Variable padded(const Variable& x, const Variable& like) {
  const int64_t down = like.size(1) - x.size(1), right = like.size(2) - x.size(2);
  if (down == 0 && right == 0) return x;
  return pad(x, {{0, 0}, {down / 2, down - down / 2}, {right / 2, right - right / 2}, {0, 0}});
}

}  // namespace

Unet::Unet(Init& init, const UnetOptions& options) {
  int64_t width = options.width;
  down_.push_back(
      register_module("inc.double_conv", double_conv(init, options.in_channels, width)));
  for (int64_t i = 1; i <= kUnetLevels; ++i, width *= 2)
    down_.push_back(register_module(fmt::format("down{}.maxpool_conv.1.double_conv", i),
                                    double_conv(init, width, 2 * width)));
  for (int64_t i = 1; i <= kUnetLevels; ++i, width /= 2) {
    enlarge_.push_back(
        register_module(fmt::format("up{}.up", i), std::make_shared<Enlarge>(init, width)));
    up_.push_back(register_module(fmt::format("up{}.conv.double_conv", i),
                                  double_conv(init, width, width / 2)));
  }
  out_ = register_module("outc.conv", std::make_shared<Conv2d>(init, width, options.num_classes, 1,
                                                               Conv2dOptions{}, true, kUnetInit));
}

Variable Unet::forward(Variable x, Context& context) {
  Variables levels = {down_[0]->forward(std::move(x), context)};
  for (size_t i = 1; i < down_.size(); ++i)
    levels.push_back(down_[i]->forward(max_pool2d(levels.back(), {}), context));
  Variable y = std::move(levels.back());
  levels.pop_back();
  for (size_t i = 0; i < up_.size(); ++i) {
    const Variable skip = std::move(levels.back());
    levels.pop_back();
    y = padded(enlarge_[i]->forward(std::move(y), context), skip);
    y = up_[i]->forward(concat({skip, y}, -1), context);
  }
  return out_->forward(std::move(y), context);
}

}  // namespace frugal::models
