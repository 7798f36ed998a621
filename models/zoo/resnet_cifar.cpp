#include "models/zoo/resnet_cifar.h"

namespace frugal::models {
namespace {

constexpr ConvInit kCifarInit = ConvInit::kaiming_fan_in;

// The shortcut, which both kinds of blocks share.
class ShortcutPath {
 public:
  ShortcutPath(Init& init, int64_t in, int64_t out, int64_t stride, Shortcut kind, bool norm)
      : stride_(stride), extra_(out - in) {
    if (identity() || kind == Shortcut::A) return;
    projection_ = std::make_shared<Sequential>();
    projection_->append(conv_same(init, in, out, 1, stride, kCifarInit));
    if (norm) projection_->append(std::make_shared<BatchNorm2d>(init, out));
  }

  const std::shared_ptr<Sequential>& projection() const { return projection_; }

  Variable forward(Variable x, Context& context) const {
    if (projection_ != nullptr) return projection_->forward(x, context);
    if (identity()) return x;
    return subsample_pad(x, stride_, extra_ / 2, extra_ - extra_ / 2);
  }

 private:
  bool identity() const { return stride_ == 1 && extra_ == 0; }
  int64_t stride_, extra_;
  std::shared_ptr<Sequential> projection_;
};

class CifarBlock : public Module {
 public:
  CifarBlock(Init& init, int64_t in, int64_t out, int64_t stride, Shortcut kind)
      : conv1_(register_module("conv1", conv_same(init, in, out, 3, stride, kCifarInit))),
        bn1_(register_module("bn1", std::make_shared<BatchNorm2d>(init, out))),
        conv2_(register_module("conv2", conv_same(init, out, out, 3, 1, kCifarInit))),
        bn2_(register_module("bn2", std::make_shared<BatchNorm2d>(init, out))),
        shortcut_(init, in, out, stride, kind, true) {
    if (shortcut_.projection() != nullptr) register_module("shortcut", shortcut_.projection());
  }

  Variable forward(Variable x, Context& context) override {
    Variable y = bn1_->forward_relu(conv1_->forward(x, context), context);
    x = shortcut_.forward(std::move(x), context);
    // Called last, so that it runs first in the backward pass and takes the norm's gradient in
    // slices.
    y = conv2_->forward(y, context);
    return bn2_->forward_add_relu(y, std::move(x), context);
  }

 private:
  std::shared_ptr<Conv2d> conv1_;
  std::shared_ptr<BatchNorm2d> bn1_;
  std::shared_ptr<Conv2d> conv2_;
  std::shared_ptr<BatchNorm2d> bn2_;
  ShortcutPath shortcut_;
};

class PreactBlock : public Module {
 public:
  PreactBlock(Init& init, int64_t in, int64_t out, int64_t stride, Shortcut kind)
      : bn1_(register_module("bn1", std::make_shared<BatchNorm2d>(init, in))),
        conv1_(register_module("conv1", conv_same(init, in, out, 3, stride, kCifarInit))),
        bn2_(register_module("bn2", std::make_shared<BatchNorm2d>(init, out))),
        conv2_(register_module("conv2", conv_same(init, out, out, 3, 1, kCifarInit))),
        shortcut_(init, in, out, stride, kind, false) {
    if (shortcut_.projection() != nullptr) register_module("shortcut", shortcut_.projection());
  }

  Variable forward(Variable x, Context& context) override {
    Variable y = conv1_->forward(bn1_->forward_relu(x, context), context);
    y = conv2_->forward(bn2_->forward_relu(y, context), context);
    return add(y, shortcut_.forward(x, context));
  }

 private:
  std::shared_ptr<BatchNorm2d> bn1_;
  std::shared_ptr<Conv2d> conv1_;
  std::shared_ptr<BatchNorm2d> bn2_;
  std::shared_ptr<Conv2d> conv2_;
  ShortcutPath shortcut_;
};

}  // namespace

const Published<CifarResNetOptions>& CifarResNetOptions::published() {
  static const Published<CifarResNetOptions> all = {
      {"resnet20", {.blocks = 3}},   {"resnet32", {.blocks = 5}},
      {"resnet44", {.blocks = 7}},   {"resnet56", {.blocks = 9}},
      {"resnet110", {.blocks = 18}}, {"preact_resnet56", {.blocks = 9, .preact = true}},
  };
  return all;
}

CifarResNetOptions cifar_resnet_options(const std::string& name) {
  return find_published(CifarResNetOptions::published(), "resnet", name);
}

void CifarResNetOptions::set_layers(CifarResNetOptions& options, const Value& layers) {
  const int64_t blocks = (layers.integer() - 2) / 6;
  if (blocks < 1 || layers.integer() != 6 * blocks + 2)
    throw OptionError("layers",
                      fmt::format("expected 6 n + 2, such as 20, got {}", layers.integer()));
  options.blocks = blocks;
}

CifarResNet::CifarResNet(Init& init, const CifarResNetOptions& options) : preact_(options.preact) {
  int64_t channels = options.width;
  conv1_ =
      register_module("conv1", conv_same(init, options.in_channels, channels, 3, 1, kCifarInit));
  if (!preact_) bn1_ = register_module("bn1", std::make_shared<BatchNorm2d>(init, channels));
  for (size_t s = 0; s < 3; ++s) {
    layers_[s] = register_module("layer" + std::to_string(s + 1), std::make_shared<Sequential>());
    const int64_t width = options.width << s;
    for (int64_t i = 0; i < options.blocks; ++i) {
      const int64_t stride = s > 0 && i == 0 ? 2 : 1;
      if (preact_)
        layers_[s]->append(
            std::make_shared<PreactBlock>(init, channels, width, stride, options.shortcut));
      else
        layers_[s]->append(
            std::make_shared<CifarBlock>(init, channels, width, stride, options.shortcut));
      channels = width;
    }
  }
  if (preact_) bn1_ = register_module("bn", std::make_shared<BatchNorm2d>(init, channels));
  if (options.num_classes > 0)
    linear_ =
        register_module("linear", std::make_shared<Linear>(init, channels, options.num_classes));
}

Variable CifarResNet::forward(Variable x, Context& context) {
  Variable y = conv1_->forward(std::move(x), context);
  if (!preact_) y = bn1_->forward_relu(std::move(y), context);
  for (const auto& layer : layers_) y = layer->forward(std::move(y), context);
  if (preact_) y = bn1_->forward_relu(y, context);
  y = global_avg_pool2d(y);
  return linear_ == nullptr ? y : linear_->forward(std::move(y), context);
}

}  // namespace frugal::models
