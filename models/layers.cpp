#include "models/layers.h"

#include <cmath>

#include "models/activations.h"
#include "models/checkpointed.h"

namespace frugal::models {
namespace {

double bound_of(int64_t fan_in) { return 1 / std::sqrt(static_cast<double>(fan_in)); }

Tensor conv_weight(Init& init, const Shape& shape, ConvInit kind) {
  const int64_t fan_in = shape[1] * shape[2] * shape[3], fan_out = shape[0] * shape[1] * shape[2];
  if (kind == ConvInit::kaiming_fan_in) return kaiming_normal(init, shape, fan_in);
  if (kind == ConvInit::kaiming_fan_out) return kaiming_normal(init, shape, fan_out);
  return uniform(init, shape, bound_of(fan_in));
}

}  // namespace

Conv2d::Conv2d(Init& init, int64_t in, int64_t out, int64_t kernel, const Conv2dOptions& options,
               bool bias, ConvInit weights)
    : options_(options) {
  FRUGAL_CHECK(options.groups >= 1 && in % options.groups == 0 && out % options.groups == 0,
               "[conv2d] expected groups that divide {} and {} channels, got {}", in, out,
               options.groups);
  const Shape shape{out, kernel, kernel, in / options.groups};
  weight_ = register_parameter("weight", conv_weight(init, shape, weights), Layout::conv_weight);
  if (bias)
    bias_ = register_parameter(
        "bias", uniform(init, {out}, bound_of(kernel * kernel * in / options.groups)));
}

Variable Conv2d::forward(Variable x, Context&) { return conv2d(x, weight_, bias_, options_); }

std::shared_ptr<Conv2d> conv_same(Init& init, int64_t in, int64_t out, int64_t kernel,
                                  int64_t stride, ConvInit weights, int64_t groups) {
  Conv2dOptions options;
  options.stride = {stride, stride};
  options.padding = {kernel / 2, kernel / 2};
  options.groups = groups;
  return std::make_shared<Conv2d>(init, in, out, kernel, options, false, weights);
}

BatchNorm2d::BatchNorm2d(Init& init, int64_t channels, double eps, double momentum)
    : eps_(eps),
      momentum_(momentum),
      weight_(register_parameter("weight", constant(init, {channels}, 1))),
      bias_(register_parameter("bias", constant(init, {channels}, 0))),
      running_mean_(register_buffer("running_mean", constant(init, {channels}, 0))),
      running_var_(register_buffer("running_var", constant(init, {channels}, 1))),
      batches_(register_buffer("num_batches_tracked", batch_counter(init))) {}

BatchNormOptions BatchNorm2d::prepare(const Context& context) {
  if (context.training && !recomputing() && batches_.raw() != nullptr) {
    ++*batches_.mut<int64_t>();
    batches_.bump_version();
  }
  return {context.training, momentum_, eps_};
}

Variable BatchNorm2d::forward(Variable x, Context& context) {
  return batch_norm(x, weight_, bias_, stats(), prepare(context));
}

Variable BatchNorm2d::forward_relu(const Variable& x, Context& context) {
  return batch_norm_relu(x, weight_, bias_, stats(), prepare(context));
}

Variable BatchNorm2d::forward_add_relu(const Variable& x, Variable residual, Context& context) {
  return batch_norm_add_relu(x, std::move(residual), weight_, bias_, stats(), prepare(context));
}

Linear::Linear(Init& init, int64_t in, int64_t out)
    : weight_(register_parameter("weight", uniform(init, {out, in}, bound_of(in)))),
      bias_(register_parameter("bias", uniform(init, {out}, bound_of(in)))) {}

Variable Linear::forward(Variable x, Context&) { return linear(x, weight_, bias_); }

void Sequential::append_module(std::shared_ptr<Module> module) {
  FRUGAL_CHECK(module != nullptr, "[sequential] expected a module, got a null pointer");
  register_module(std::to_string(modules_.size()), module);
  modules_.push_back(std::move(module));
}

Module& Sequential::operator[](size_t index) const {
  FRUGAL_CHECK(index < size(), "[sequential] expected an index below {}, got {}", size(), index);
  return *modules_[index];
}

Variable Sequential::forward(Variable x, Context& context) {
  for (size_t i = 0; i < size(); ++i) {
    const std::shared_ptr<Module>& module = modules_[i];
    const auto norm = std::dynamic_pointer_cast<BatchNorm2d>(module);
    if (norm != nullptr && i + 1 < size() &&
        dynamic_cast<Relu*>(modules_[i + 1].get()) != nullptr) {
      ++i;
      x = checkpointed(context, std::move(x), [norm](const Variable& in, Context& inner) {
        return norm->forward_relu(in, inner);
      });
    } else {
      x = checkpointed(context, std::move(x), [module](Variable in, Context& inner) {
        return module->forward(std::move(in), inner);
      });
    }
  }
  return x;
}

}  // namespace frugal::models
