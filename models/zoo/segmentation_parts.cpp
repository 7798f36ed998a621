#include "models/zoo/segmentation_parts.h"

#include "autograd/segmentation_functions.h"
#include "models/activations.h"
#include "models/dense.h"

namespace frugal::models {

Conv2dOptions same_size(const WindowOptions& window) {
  const int64_t padding = window.kernel / 2 * window.dilation;
  Conv2dOptions options;
  options.stride = {window.stride, window.stride};
  options.padding = {padding, padding};
  options.dilation = {window.dilation, window.dilation};
  return options;
}

void append_conv_norm_relu(Sequential& layers, Init& init, int64_t in, int64_t out,
                           const WindowOptions& window, ConvInit weights) {
  layers.append(
      std::make_shared<Conv2d>(init, in, out, window.kernel, same_size(window), false, weights));
  layers.append(std::make_shared<BatchNorm2d>(init, out));
  layers.append(std::make_shared<Relu>());
}

std::shared_ptr<Sequential> conv_norm_relu(Init& init, int64_t in, int64_t out,
                                           const WindowOptions& window, ConvInit weights) {
  auto layers = std::make_shared<Sequential>();
  append_conv_norm_relu(*layers, init, in, out, window, weights);
  layers->set_blocks({});
  return layers;
}

std::shared_ptr<Module> pixel_classifier(Init& init, int64_t in, int64_t classes,
                                         double deviation) {
  return std::make_shared<FilledConv2d>(normal(init, {classes, 1, 1, in}, deviation),
                                        constant(init, {classes}, 0), Conv2dOptions{});
}

Variable resized(const Variable& x, int64_t height, int64_t width) {
  if (x.size(1) == height && x.size(2) == width) return x;
  return interpolate(x, height, width, {Interpolation::bilinear, false});
}

Variable drop_channels(const Variable& x, double p, Context& context) {
  if (p == 0 || !context.training) return x;
  FRUGAL_CHECK(context.rng != nullptr, "[dropout2d] expected a random stream, got none");
  return dropout2d(x, p, context.rng->next());
}

}  // namespace frugal::models
