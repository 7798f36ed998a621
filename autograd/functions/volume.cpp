#include "autograd/functions.h"
#include "autograd/volume_functions.h"

// A sequence is an image of one row. A volume is pooled layer by layer, as images, and then along
// its depth, as images whose rows are layers.
namespace frugal {
namespace {

void check_rank(const char* op, const char* name, const Variable& x, int axes) {
  FRUGAL_CHECK(x.defined() && x.shape().dim() == axes, "[{}] expected {} with {} axes, got {}", op,
               name, axes, x.defined() ? describe(x.value()) : "an undefined one");
}

// [A, B, C] as [A, 1, B, C], and back.
Variable as_row_image(const Variable& x) {
  return reshape(x, {x.size(0), 1, x.size(1), x.size(2)});
}
Variable from_row_image(const Variable& x) { return reshape(x, {x.size(0), x.size(2), x.size(3)}); }

template <class F>
Variable of_sequence(const char* op, const Variable& x, F f) {
  check_rank(op, "x", x, 3);
  return from_row_image(f(as_row_image(x)));
}

// in_layers of images [N D, H, W, C], then along_depth of images [N, D, H W, C].
template <class F, class G>
Variable of_volume(const char* op, const Variable& x, F in_layers, G along_depth) {
  check_rank(op, "x", x, 5);
  const int64_t n = x.size(0), depth = x.size(1), c = x.size(4);
  const Variable layers = in_layers(reshape(x, {n * depth, x.size(2), x.size(3), c}));
  const int64_t h = layers.size(1), w = layers.size(2);
  const Variable y = along_depth(reshape(layers, {n, depth, h * w, c}));
  return reshape(y, {n, y.size(1), h, w, c});
}

Pool2dOptions of_row(const Pool1dOptions& o) {
  return {{1, o.kernel}, {1, o.stride}, {0, o.padding}, o.count_include_pad};
}
Pool2dOptions of_layer(const Pool3dOptions& o) {
  return {{o.kernel[1], o.kernel[2]},
          {o.stride[1], o.stride[2]},
          {o.padding[1], o.padding[2]},
          o.count_include_pad};
}
Pool2dOptions of_depth(const Pool3dOptions& o) {
  return {{o.kernel[0], 1}, {o.stride[0], 1}, {o.padding[0], 0}, o.count_include_pad};
}

}  // namespace

Variable conv_transpose1d(const Variable& x, const Variable& weight, const Variable& bias,
                          const ConvTranspose1dOptions& options) {
  check_rank("conv_transpose1d", "weight", weight, 3);
  const ConvTranspose2dOptions o{{1, options.stride},
                                 {0, options.padding},
                                 {0, options.output_padding},
                                 {1, options.dilation},
                                 options.groups};
  return of_sequence("conv_transpose1d", x, [&](const Variable& image) {
    return conv_transpose2d(image, as_row_image(weight), bias, o);
  });
}

Variable max_pool1d(const Variable& x, const Pool1dOptions& options) {
  return of_sequence("max_pool1d", x,
                     [&](const Variable& image) { return max_pool2d(image, of_row(options)); });
}

Variable avg_pool1d(const Variable& x, const Pool1dOptions& options) {
  return of_sequence("avg_pool1d", x,
                     [&](const Variable& image) { return avg_pool2d(image, of_row(options)); });
}

Variable adaptive_max_pool1d(const Variable& x, int64_t out) {
  return of_sequence("adaptive_max_pool1d", x,
                     [&](const Variable& image) { return adaptive_max_pool2d(image, 1, out); });
}

Variable adaptive_avg_pool1d(const Variable& x, int64_t out) {
  return of_sequence("adaptive_avg_pool1d", x,
                     [&](const Variable& image) { return adaptive_avg_pool2d(image, 1, out); });
}

Variable max_pool3d(const Variable& x, const Pool3dOptions& options) {
  return of_volume(
      "max_pool3d", x, [&](const Variable& v) { return max_pool2d(v, of_layer(options)); },
      [&](const Variable& v) { return max_pool2d(v, of_depth(options)); });
}

Variable avg_pool3d(const Variable& x, const Pool3dOptions& options) {
  return of_volume(
      "avg_pool3d", x, [&](const Variable& v) { return avg_pool2d(v, of_layer(options)); },
      [&](const Variable& v) { return avg_pool2d(v, of_depth(options)); });
}

Variable adaptive_max_pool3d(const Variable& x, const Triple& out) {
  return of_volume(
      "adaptive_max_pool3d", x,
      [&](const Variable& v) { return adaptive_max_pool2d(v, out[1], out[2]); },
      [&](const Variable& v) { return adaptive_max_pool2d(v, out[0], v.size(2)); });
}

Variable adaptive_avg_pool3d(const Variable& x, const Triple& out) {
  return of_volume(
      "adaptive_avg_pool3d", x,
      [&](const Variable& v) { return adaptive_avg_pool2d(v, out[1], out[2]); },
      [&](const Variable& v) { return adaptive_avg_pool2d(v, out[0], v.size(2)); });
}

}  // namespace frugal
