#include "models/dense.h"

#include <cmath>

#include "autograd/functions.h"

namespace frugal::models {

Dense::Dense(Tensor weight, Tensor bias, Layout layout)
    : weight_(register_parameter("weight", std::move(weight), layout)) {
  if (bias.defined()) bias_ = register_parameter("bias", std::move(bias));
}

Variable Dense::forward(Variable x, Context&) { return linear(x, weight_, bias_); }

FilledConv2d::FilledConv2d(Tensor weight, Tensor bias, const Conv2dOptions& options)
    : options_(options),
      weight_(register_parameter("weight", std::move(weight), Layout::conv_weight)),
      bias_(register_parameter("bias", std::move(bias))) {}

Variable FilledConv2d::forward(Variable x, Context&) { return conv2d(x, weight_, bias_, options_); }

std::shared_ptr<Dense> normal_dense(Init& init, int64_t in, int64_t out, double deviation,
                                    Module::Layout layout) {
  Tensor weight = normal(init, {out, in}, deviation);
  return std::make_shared<Dense>(std::move(weight), constant(init, {out}, 0), layout);
}

std::shared_ptr<Dense> xavier_dense(Init& init, int64_t in, int64_t out) {
  Tensor weight = uniform(init, {out, in}, std::sqrt(6.0 / static_cast<double>(in + out)));
  return std::make_shared<Dense>(std::move(weight), constant(init, {out}, 0));
}

Variable drop(const Variable& x, double p, Context& context) {
  if (p == 0 || !context.training) return x;
  FRUGAL_CHECK(context.rng != nullptr, "[dropout] expected a random stream, got none");
  return dropout(x, p, context.rng->next());
}

}  // namespace frugal::models
