#include "models/activations.h"

#include "autograd/graph_functions.h"
#include "models/dense.h"

namespace frugal::models {
namespace {

Pool2dOptions square(int64_t kernel, int64_t stride, int64_t padding) {
  Pool2dOptions options;
  options.kernel = {kernel, kernel};
  options.stride = stride == 0 ? options.kernel : Pair{stride, stride};
  options.padding = {padding, padding};
  return options;
}

}  // namespace

Variable Identity::forward(Variable x, Context&) { return x; }
Variable Relu::forward(Variable x, Context&) { return relu(x); }
Variable LeakyRelu::forward(Variable x, Context&) { return leaky_relu(x, slope_); }
Variable Elu::forward(Variable x, Context&) { return elu(x); }
Variable Gelu::forward(Variable x, Context&) { return gelu(x, kind_); }
Variable Silu::forward(Variable x, Context&) { return silu(x); }
Variable Sigmoid::forward(Variable x, Context&) { return sigmoid(x); }
Variable Tanh::forward(Variable x, Context&) { return tanh(x); }
Variable Softmax::forward(Variable x, Context&) { return softmax(x, axis_); }
Variable LogSoftmax::forward(Variable x, Context&) { return log_softmax(x, axis_); }

Dropout::Dropout(double p) : p_(p) {
  FRUGAL_CHECK(p >= 0 && p < 1, "[dropout] expected a probability in [0, 1), got {}", p);
}
Variable Dropout::forward(Variable x, Context& context) { return drop(x, p_, context); }

Variable Flatten::forward(Variable x, Context&) {
  FRUGAL_CHECK(x.value().dim() >= 1, "[flatten] expected at least one axis, got {}",
               describe(x.value()));
  int64_t features = 1;
  for (int axis = 1; axis < x.value().dim(); ++axis) features *= x.size(axis);
  const bool image = x.value().dim() == 4 && x.size(3) > 1 && x.size(1) * x.size(2) > 1;
  const Variable y = image ? transpose(transpose(x, 2, 3), 1, 2) : x;
  return reshape(y, {x.size(0), features});
}

MaxPool2d::MaxPool2d(int64_t kernel, int64_t stride, int64_t padding)
    : options_(square(kernel, stride, padding)) {}
Variable MaxPool2d::forward(Variable x, Context&) { return max_pool2d(x, options_); }

AvgPool2d::AvgPool2d(int64_t kernel, int64_t stride, int64_t padding)
    : options_(square(kernel, stride, padding)) {}
Variable AvgPool2d::forward(Variable x, Context&) { return avg_pool2d(x, options_); }

Variable AdaptiveAvgPool2d::forward(Variable x, Context&) {
  return adaptive_avg_pool2d(x, height_, width_);
}
Variable GlobalAvgPool2d::forward(Variable x, Context&) { return global_avg_pool2d(x); }

}  // namespace frugal::models
