#include "models/zoo/densenet.h"

#include <cmath>

#include "autograd/record.h"
#include "models/checkpointed.h"

namespace frugal::models {
namespace {

constexpr ConvInit kDenseNetInit = ConvInit::kaiming_fan_in;

// Batch norm and relu of a concatenation [N, H, W, C] that is given in parts.
class PartsNorm : public Module {
 public:
  PartsNorm(Init& init, int64_t channels)
      : weight_(register_parameter("weight", constant(init, {channels}, 1))),
        bias_(register_parameter("bias", constant(init, {channels}, 0))),
        running_mean_(register_buffer("running_mean", constant(init, {channels}, 0))),
        running_var_(register_buffer("running_var", constant(init, {channels}, 1))),
        batches_(register_buffer("num_batches_tracked", batch_counter(init))) {}

  Variable forward(Variable x, Context& context) override {
    return forward_relu({std::move(x)}, context);
  }

  Variable forward_relu(const Variables& parts, Context& context) {
    BatchNormOptions options;
    options.training = norms_by_batch(context, weight_);
    if (options.training && !recomputing() && batches_.raw() != nullptr) {
      ++*batches_.mut<int64_t>();
      batches_.bump_version();
    }
    if (!options.training && !grad_enabled()) {
      // Nothing is saved, so one norm of the whole concatenation suffices.
      const BatchNormStats all{running_mean_, running_var_};
      return batch_norm_relu(parts.size() == 1 ? parts[0] : concat(parts, -1), weight_, bias_, all,
                             options);
    }
    Variables normed;
    int64_t begin = 0;
    for (const Variable& part : parts) {
      const int64_t end = begin + part.shape().back();
      const BatchNormStats stats{running_mean_.slice(0, begin, end),
                                 running_var_.slice(0, begin, end)};
      normed.push_back(batch_norm_relu(part, slice(weight_, 0, begin, end),
                                       slice(bias_, 0, begin, end), stats, options));
      begin = end;
    }
    return normed.size() == 1 ? normed[0] : concat(normed, -1);
  }

 private:
  Variable weight_, bias_;
  Tensor &running_mean_, &running_var_, &batches_;
};

class Layer : public Module {
 public:
  Layer(Init& init, int64_t in, const DenseNetOptions& options)
      : dropout_(options.dropout),
        norm1_(register_module("norm1", std::make_shared<PartsNorm>(init, in))),
        conv1_(register_module("conv1", conv_same(init, in, options.bottleneck * options.growth, 1,
                                                  1, kDenseNetInit))),
        norm2_(register_module(
            "norm2", std::make_shared<BatchNorm2d>(init, options.bottleneck * options.growth))),
        conv2_(register_module("conv2", conv_same(init, options.bottleneck * options.growth,
                                                  options.growth, 3, 1, kDenseNetInit))) {}

  Variable forward(Variable x, Context& context) override {
    return forward(Variables{std::move(x)}, context);
  }

  Variable forward(const Variables& parts, Context& context) {
    Variable y = conv1_->forward(norm1_->forward_relu(parts, context), context);
    y = conv2_->forward(norm2_->forward_relu(y, context), context);
    return drop(y, dropout_, context);
  }

 private:
  double dropout_;
  std::shared_ptr<PartsNorm> norm1_;
  std::shared_ptr<Conv2d> conv1_;
  std::shared_ptr<BatchNorm2d> norm2_;
  std::shared_ptr<Conv2d> conv2_;
};

// Appends each layer's output to the parts.
class Block : public Module {
 public:
  // `channels` is the width of the input; it becomes the width of the output.
  Block(Init& init, int64_t& channels, int64_t depth, const DenseNetOptions& options) {
    for (int64_t i = 0; i < depth; ++i) {
      layers_.push_back(register_module("denselayer" + std::to_string(i + 1),
                                        std::make_shared<Layer>(init, channels, options)));
      channels += options.growth;
    }
  }

  Variable forward(Variable x, Context& context) override {
    Variables parts{std::move(x)};
    extend(parts, context);
    return concat(parts, -1);
  }

  void extend(Variables& parts, Context& context) const {
    for (const auto& layer : layers_)
      parts.push_back(checkpointed(context, parts, [layer](const Variables& in, Context& inner) {
        return layer->forward(in, inner);
      }));
  }

 private:
  std::vector<std::shared_ptr<Layer>> layers_;
};

class Transition : public Module {
 public:
  Transition(Init& init, int64_t in)
      : norm_(register_module("norm", std::make_shared<PartsNorm>(init, in))),
        conv_(register_module("conv", conv_same(init, in, in / 2, 1, 1, kDenseNetInit))) {}

  Variable forward(Variable x, Context& context) override {
    return forward(Variables{std::move(x)}, context);
  }

  // A 1x1 convolution and an average may be exchanged. With the pooling first, the convolution
  // works on a quarter of the pixels.
  Variable forward(const Variables& parts, Context& context) {
    return conv_->forward(avg_pool2d(norm_->forward_relu(parts, context), {}), context);
  }

 private:
  std::shared_ptr<PartsNorm> norm_;
  std::shared_ptr<Conv2d> conv_;
};

}  // namespace

class DenseNet::Features : public Module {
 public:
  // `channels` becomes the width of the output.
  Features(Init& init, const DenseNetOptions& options, int64_t& channels) {
    channels = options.stem_channels;
    conv0_ = register_module("conv0",
                             conv_same(init, options.in_channels, channels, 7, 2, kDenseNetInit));
    norm0_ = register_module("norm0", std::make_shared<BatchNorm2d>(init, channels));
    for (size_t b = 0; b < blocks_.size(); ++b) {
      const std::string number = std::to_string(b + 1);
      blocks_[b] =
          register_module("denseblock" + number,
                          std::make_shared<Block>(init, channels, options.depths[b], options));
      if (b == transitions_.size()) break;
      transitions_[b] =
          register_module("transition" + number, std::make_shared<Transition>(init, channels));
      channels /= 2;
    }
    norm5_ = register_module("norm5", std::make_shared<PartsNorm>(init, channels));
  }

  Variable forward(Variable x, Context& context) override {
    Pool2dOptions pool;
    pool.kernel = {3, 3};
    pool.padding = {1, 1};
    x = norm0_->forward_relu(conv0_->forward(std::move(x), context), context);
    Variables parts{max_pool2d(x, pool)};
    x = {};
    for (size_t b = 0; b < blocks_.size(); ++b) {
      blocks_[b]->extend(parts, context);
      if (b == transitions_.size()) break;
      parts = {checkpointed(context, parts,
                            [transition = transitions_[b]](const Variables& in, Context& inner) {
                              return transition->forward(in, inner);
                            })};
    }
    return norm5_->forward_relu(parts, context);
  }

 private:
  std::shared_ptr<Conv2d> conv0_;
  std::shared_ptr<BatchNorm2d> norm0_;
  std::array<std::shared_ptr<Block>, 4> blocks_;
  std::array<std::shared_ptr<Transition>, 3> transitions_;
  std::shared_ptr<PartsNorm> norm5_;
};

const Published<DenseNetOptions>& DenseNetOptions::published() {
  static const Published<DenseNetOptions> all = {
      {"densenet121", {{6, 12, 24, 16}, 32, 64}},
      {"densenet161", {{6, 12, 36, 24}, 48, 96}},
      {"densenet169", {{6, 12, 32, 32}, 32, 64}},
      {"densenet201", {{6, 12, 48, 32}, 32, 64}},
  };
  return all;
}

DenseNetOptions densenet_options(const std::string& name) {
  return find_published(DenseNetOptions::published(), "densenet", name);
}

DenseNet::DenseNet(Init& init, const DenseNetOptions& options) {
  int64_t channels = 0;
  features_ = register_module("features", std::make_shared<Features>(init, options, channels));
  Tensor weight =
      uniform(init, {options.num_classes, channels}, 1 / std::sqrt(static_cast<double>(channels)));
  classifier_ = register_module(
      "classifier",
      std::make_shared<Dense>(std::move(weight), constant(init, {options.num_classes}, 0)));
}

Variable DenseNet::forward(Variable x, Context& context) {
  FRUGAL_CHECK(x.value().dim() == 4 && x.size(1) >= 32 && x.size(2) >= 32,
               "[densenet] expected images [N, H, W, C] of at least 32 x 32, got {}",
               describe(x.value()));
  x = global_avg_pool2d(features_->forward(std::move(x), context));
  return classifier_->forward(x, context);
}

}  // namespace frugal::models
