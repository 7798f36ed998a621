#include "models/zoo/vgg.h"

#include "models/checkpointed.h"

namespace frugal::models {
namespace {

constexpr int64_t kClassifierSide = 7;  // side of the classifier's input, for every image size

}  // namespace

// A convolution, its norm if there is one, and relu.
class Vgg::Layer {
 public:
  // Takes the positions in the Sequential that torchvision uses.
  Layer(Init& init, Vgg& net, int64_t& position, int64_t in, int64_t out, bool norm) {
    Conv2dOptions same;
    same.padding = {1, 1};
    Tensor weight = kaiming_normal(init, {out, 3, 3, in}, 9 * out);
    const auto name = [&] { return "features." + std::to_string(position++); };
    conv_ = net.register_module(
        name(), std::make_shared<FilledConv2d>(std::move(weight), constant(init, {out}, 0), same));
    if (norm) norm_ = net.register_module(name(), std::make_shared<BatchNorm2d>(init, out));
    ++position;  // relu
  }

  Variable forward(const Variable& x, Context& context) const {
    const Variable y = conv_->forward(x, context);
    return norm_ != nullptr ? norm_->forward_relu(std::move(y), context) : relu(y);
  }

 private:
  std::shared_ptr<FilledConv2d> conv_;
  std::shared_ptr<BatchNorm2d> norm_;
};

const Published<VggOptions>& VggOptions::published() {
  static const Published<VggOptions> all = {
      {"vgg11", {{1, 1, 2, 2, 2}}},
      {"vgg13", {{2, 2, 2, 2, 2}}},
      {"vgg16", {{2, 2, 3, 3, 3}}},
      {"vgg19", {{2, 2, 4, 4, 4}}},
      {"vgg11_bn", {{1, 1, 2, 2, 2}, 64, true}},
      {"vgg13_bn", {{2, 2, 2, 2, 2}, 64, true}},
      {"vgg16_bn", {{2, 2, 3, 3, 3}, 64, true}},
      {"vgg19_bn", {{2, 2, 4, 4, 4}, 64, true}},
  };
  return all;
}

VggOptions vgg_options(const std::string& name) {
  return find_published(VggOptions::published(), "vgg", name);
}

Vgg::Vgg(Init& init, const VggOptions& options) : dropout_(options.dropout) {
  int64_t position = 0, channels = options.in_channels;
  for (size_t s = 0; s < stages_.size(); ++s) {
    const int64_t width = options.width << std::min<size_t>(s, 3);
    stages_[s] = std::make_shared<Stage>();
    for (int64_t i = 0; i < options.depths[s]; ++i) {
      stages_[s]->push_back(
          std::make_shared<Layer>(init, *this, position, channels, width, options.batch_norm));
      channels = width;
    }
    ++position;  // max-pool
  }
  const auto dense = [&](int64_t at, int64_t in, int64_t out) {
    return register_module("classifier." + std::to_string(at), normal_dense(init, in, out, 0.01));
  };
  classifier_[0] = dense(0, channels * kClassifierSide * kClassifierSide, options.hidden);
  classifier_[1] = dense(3, options.hidden, options.hidden);
  classifier_[2] = dense(6, options.hidden, options.num_classes);
}

Variable Vgg::forward(Variable x, Context& context) {
  FRUGAL_CHECK(x.value().dim() == 4 && x.size(1) >= 32 && x.size(2) >= 32,
               "[vgg] expected images [N, H, W, C] of at least 32 x 32, got {}",
               describe(x.value()));
  for (const auto& stage : stages_)
    x = checkpointed(context, std::move(x), [stage](Variable in, Context& inner) {
      for (const auto& layer : *stage) in = layer->forward(std::move(in), inner);
      return max_pool2d(in, {});
    });
  x = adaptive_avg_pool2d(x, kClassifierSide, kClassifierSide);
  // torchvision flattens [C, H, W].
  x = transpose(transpose(x, 2, 3), 1, 2);
  x = reshape(x, {x.size(0), -1});
  x = drop(relu(classifier_[0]->forward(x, context)), dropout_, context);
  x = drop(relu(classifier_[1]->forward(x, context)), dropout_, context);
  return classifier_[2]->forward(x, context);
}

}  // namespace frugal::models
