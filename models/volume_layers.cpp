#include "models/volume_layers.h"

#include <cmath>

#include "autograd/transformer_functions.h"
#include "models/zoo/segmentation_parts.h"

namespace frugal::models {
namespace {

void check_groups(const char* op, int64_t in, int64_t out, int64_t groups) {
  FRUGAL_CHECK(groups >= 1 && in % groups == 0 && out % groups == 0,
               "[{}] expected groups that divide {} and {} channels, got {}", op, in, out, groups);
}

// PyTorch's bound of weights and biases: the second axis of its weights, the last one here, counts
// as the inputs, for transposed convolutions, too.
double weight_bound(const Shape& weight) {
  double fan = 1;
  for (int axis = 1; axis < weight.dim(); ++axis) fan *= static_cast<double>(weight[axis]);
  return 1 / std::sqrt(fan);
}

}  // namespace

Conv1d::Conv1d(Init& init, int64_t in, int64_t out, int64_t kernel, const Conv1dOptions& options,
               bool bias)
    : options_(options) {
  check_groups("conv1d", in, out, options.groups);
  const Shape shape{out, kernel, in / options.groups};
  const double bound = weight_bound(shape);
  weight_ = register_parameter("weight", uniform(init, shape, bound), Layout::conv_weight);
  if (bias) bias_ = register_parameter("bias", uniform(init, {out}, bound));
}
Variable Conv1d::forward(Variable x, Context&) {
  return conv1d(x, weight_, bias_, options_.stride, options_.padding, options_.dilation,
                options_.groups);
}

Conv3d::Conv3d(Init& init, int64_t in, int64_t out, const Triple& kernel,
               const Conv3dOptions& options, bool bias)
    : options_(options) {
  check_groups("conv3d", in, out, options.groups);
  const Shape shape{out, kernel[0], kernel[1], kernel[2], in / options.groups};
  const double bound = weight_bound(shape);
  weight_ = register_parameter("weight", uniform(init, shape, bound), Layout::conv_weight);
  if (bias) bias_ = register_parameter("bias", uniform(init, {out}, bound));
}
Variable Conv3d::forward(Variable x, Context&) { return conv3d(x, weight_, bias_, options_); }

ConvTranspose1d::ConvTranspose1d(Init& init, int64_t in, int64_t out, int64_t kernel,
                                 const ConvTranspose1dOptions& options, bool bias)
    : options_(options) {
  check_groups("conv_transpose1d", in, out, options.groups);
  const Shape shape{in, kernel, out / options.groups};
  const double bound = weight_bound(shape);
  weight_ = register_parameter("weight", uniform(init, shape, bound), Layout::conv_weight);
  if (bias) bias_ = register_parameter("bias", uniform(init, {out}, bound));
}
Variable ConvTranspose1d::forward(Variable x, Context&) {
  return conv_transpose1d(x, weight_, bias_, options_);
}

ConvTranspose2d::ConvTranspose2d(Init& init, int64_t in, int64_t out, Pair kernel,
                                 const ConvTranspose2dOptions& options, bool bias)
    : options_(options) {
  check_groups("conv_transpose2d", in, out, options.groups);
  const Shape shape{in, kernel[0], kernel[1], out / options.groups};
  const double bound = weight_bound(shape);
  weight_ = register_parameter("weight", uniform(init, shape, bound), Layout::conv_weight);
  if (bias) bias_ = register_parameter("bias", uniform(init, {out}, bound));
}
Variable ConvTranspose2d::forward(Variable x, Context&) {
  return conv_transpose2d(x, weight_, bias_, options_);
}

ConvTranspose3d::ConvTranspose3d(Init& init, int64_t in, int64_t out, const Triple& kernel,
                                 const ConvTranspose3dOptions& options, bool bias)
    : options_(options) {
  check_groups("conv_transpose3d", in, out, options.groups);
  const Shape shape{in, kernel[0], kernel[1], kernel[2], out / options.groups};
  const double bound = weight_bound(shape);
  weight_ = register_parameter("weight", uniform(init, shape, bound), Layout::conv_weight);
  if (bias) bias_ = register_parameter("bias", uniform(init, {out}, bound));
}
Variable ConvTranspose3d::forward(Variable x, Context&) {
  return conv_transpose3d(x, weight_, bias_, options_);
}

Variable MaxPool1d::forward(Variable x, Context&) { return max_pool1d(x, options_); }
Variable AvgPool1d::forward(Variable x, Context&) { return avg_pool1d(x, options_); }
Variable MaxPool3d::forward(Variable x, Context&) { return max_pool3d(x, options_); }
Variable AvgPool3d::forward(Variable x, Context&) { return avg_pool3d(x, options_); }
Variable AdaptiveMaxPool2d::forward(Variable x, Context&) {
  return adaptive_max_pool2d(x, height_, width_);
}

Dropout2d::Dropout2d(double p) : p_(p) {
  FRUGAL_CHECK(p >= 0 && p < 1, "[dropout2d] expected a probability in [0, 1), got {}", p);
}
Variable Dropout2d::forward(Variable x, Context& context) { return drop_channels(x, p_, context); }

}  // namespace frugal::models
