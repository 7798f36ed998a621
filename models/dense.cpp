#include "models/dense.h"

#include "autograd/functions.h"
#include "models/matrix_weight.h"
#include "ops/dense/dropout.h"

namespace frugal::models {

Dense::Dense(Tensor weight, Tensor bias, Layout layout) : LinearLayer(std::move(weight), layout) {
  if (bias.defined()) set_bias(std::move(bias));
}

FilledConv2d::FilledConv2d(Tensor weight, Tensor bias, const Conv2dOptions& options)
    : options_(options),
      weight_(register_parameter("weight", std::move(weight), Layout::conv_weight)),
      bias_(register_parameter("bias", std::move(bias))) {}

Variable FilledConv2d::forward(Variable x, Context&) {
  return conv2d(std::move(x), weight_, bias_, options_);
}

std::shared_ptr<Dense> normal_dense(Init& init, int64_t in, int64_t out, double deviation,
                                    Module::Layout layout) {
  Tensor weight = normal(init, {out, in}, deviation);
  return std::make_shared<Dense>(std::move(weight), constant(init, {out}, 0), layout);
}

Variable drop(const Variable& x, double p, Context& context) {
  if (p == 0 || !context.training) return x;
  FRUGAL_CHECK(context.rng != nullptr, "[dropout] expected a random stream, got none");
  return dropout(x, p, context.rng->next());
}

Variable drop_samples(const Variable& x, double p, Context& context) {
  if (p == 0 || !context.training) return x;
  FRUGAL_CHECK(context.rng != nullptr, "[dropout] expected a random stream, got none");
  CategoryScope scope(Category::activation);
  Shape each = x.shape();
  for (int axis = 1; axis < each.dim(); ++axis) each[axis] = 1;
  const Tensor ones = Tensor::full(each, 1, x.dtype(), x.device());
  return mul(x, Variable(ops::dropout(ones, p, context.rng->next())));
}

double depth_rate(double last, int64_t block, int64_t blocks) {
  return last * static_cast<double>(block) / static_cast<double>(std::max<int64_t>(blocks - 1, 1));
}

}  // namespace frugal::models
