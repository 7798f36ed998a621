#include "ops/image/conv3d.h"

#include <algorithm>

#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/dense/inplace.h"
#include "ops/image/conv2d.h"

// Volumes are worked on as [D, N, H, W, C], where neighbouring layers of all samples lie together.
// A layer of the window then convolves a range of them as one batch of images.
namespace frugal::ops {
namespace {

constexpr const char* kConv3d = "conv3d";
constexpr const char* kTransposed = "conv_transpose3d";

Conv2dOptions of_layer(const Conv3dOptions& o) {
  return {{o.stride[1], o.stride[2]},
          {o.padding[1], o.padding[2]},
          {o.dilation[1], o.dilation[2]},
          o.groups};
}

// A volume or weight without its second axis.
Shape without_depth(const Shape& s) { return {s[0], s[2], s[3], s[4]}; }

Shape conv3d_shape(const char* op, const Shape& x, const Shape& weight, const Conv3dOptions& o) {
  FRUGAL_CHECK(x.dim() == 5 && weight.dim() == 5,
               "[{}] expected x and weight with 5 axes, got {} and {}", op, x, weight);
  // The depth takes the place of the height, so that one function checks every axis.
  const Conv2dOptions depth{{o.stride[0], 1}, {o.padding[0], 0}, {o.dilation[0], 1}, o.groups};
  const Shape along =
      conv2d_shape(op, {x[0], x[1], 1, x[4]}, {weight[0], weight[1], 1, weight[4]}, depth);
  const Shape layer = conv2d_shape(op, without_depth(x), without_depth(weight), of_layer(o));
  return {x[0], along[1], layer[1], layer[2], weight[0]};
}

// What layer t of the window joins: `count` layers of y from `y` on, and those of x from `x` on,
// one in `stride`.
struct Range {
  int64_t y, x, count, stride;
};
Range range_of(int64_t t, int64_t x_depth, int64_t y_depth, const Conv3dOptions& o) {
  const int64_t stride = o.stride[0], shift = t * o.dilation[0] - o.padding[0];
  const int64_t first = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
  const int64_t room = x_depth - 1 - shift;
  const int64_t last = room < 0 ? -1 : std::min(y_depth - 1, room / stride);
  return {first, first * stride + shift, std::max<int64_t>(last - first + 1, 0), stride};
}

// [N, D, ...] as [D, N, ...].
Tensor by_layers(const Tensor& x) { return contiguous(x.transpose(0, 1)); }

// [D, N, H, W, C] as images [D N, H, W, C].
Tensor images(const Tensor& layers) {
  return layers.view(
      {layers.size(0) * layers.size(1), layers.size(2), layers.size(3), layers.size(4)});
}

Tensor layers_of(const Tensor& x, const Range& range) {
  if (range.stride == 1) return x.slice(0, range.x, range.x + range.count);
  Shape shape = x.shape();
  shape[0] = range.count;
  const CategoryScope scope(Category::workspace);
  const Tensor some = Tensor::empty(shape, x.dtype(), x.device());
  for (int64_t i = 0; i < range.count; ++i) {
    const int64_t from = range.x + i * range.stride;
    copy_into(some.slice(0, i, i + 1), x.slice(0, from, from + 1));
  }
  return some;
}

void add_layers(const Tensor& x, const Range& range, const Tensor& terms) {
  if (range.stride == 1) return accumulate(x.slice(0, range.x, range.x + range.count), terms);
  for (int64_t i = 0; i < range.count; ++i) {
    const int64_t to = range.x + i * range.stride;
    accumulate(x.slice(0, to, to + 1), terms.slice(0, i, i + 1));
  }
}

void check_volumes(const char* op, const Tensor& x, const Tensor& weight) {
  check_dim(op, "x", x, 5);
  check_dim(op, "weight", weight, 5);
  check_real(op, "x", x);
  check_beside(op, x, {&weight});
}

// Calls f(t, range) for each layer of the window that meets x.
template <class F>
void for_each_layer(const Shape& x, const Shape& weight, const Shape& y, const Conv3dOptions& o,
                    F f) {
  if (y.numel() == 0 || x.numel() == 0) return;
  for (int64_t t = 0; t < weight[1]; ++t)
    if (const Range range = range_of(t, x[1], y[1], o); range.count > 0) f(t, range);
}

Tensor zero_workspace(const Shape& shape, const Tensor& like) {
  const CategoryScope scope(Category::workspace);
  return Tensor::zeros(shape, like.dtype(), like.device());
}

Conv3dOptions as_conv3d(const ConvTranspose3dOptions& o) {
  return {o.stride, o.padding, o.dilation, o.groups};
}

Shape transposed_shape(const char* op, const Shape& x, const Shape& weight,
                       const ConvTranspose3dOptions& o) {
  FRUGAL_CHECK(x.dim() == 5 && weight.dim() == 5 && o.groups >= 1 && x[4] == weight[0] &&
                   x[4] % o.groups == 0,
               "[{}] expected a weight [C, T, R, S, K/groups] for {} channels and {} groups, got "
               "{}",
               op, x.back(), o.groups, weight);
  Shape y{x[0], 0, 0, 0, weight[4] * o.groups};
  for (int axis = 1; axis <= 3; ++axis) {
    const auto i = static_cast<size_t>(axis - 1);
    FRUGAL_CHECK(in_range(o.stride[i], 1) && in_range(o.dilation[i], 1) &&
                     in_range(o.padding[i], 0) && in_range(o.output_padding[i], 0) &&
                     o.output_padding[i] < o.stride[i],
                 "[{}] expected a stride and dilation of at least 1, padding of at least 0 and an "
                 "output padding in [0, stride), got {}, {}, {} and {}",
                 op, o.stride[i], o.dilation[i], o.padding[i], o.output_padding[i]);
    y[axis] = (x[axis] - 1) * o.stride[i] - 2 * o.padding[i] + o.dilation[i] * (weight[axis] - 1) +
              o.output_padding[i] + 1;
    FRUGAL_CHECK(weight[axis] >= 1 && x[axis] >= 1 && in_range(y[axis], 1),
                 "[{}] expected an output of at least 1x1x1 from {} and {}, got {}", op, x, weight,
                 y[axis]);
  }
  return y;
}

}  // namespace

Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv3dOptions& options) {
  check_volumes(kConv3d, x, weight);
  check_beside(kConv3d, x, {&bias});
  const Shape y = conv3d_shape(kConv3d, x.shape(), weight.shape(), options);
  if (bias.defined()) check_shape(kConv3d, "bias", bias, {y[4]});
  const Tensor in = by_layers(x), out = zero_workspace({y[1], y[0], y[2], y[3], y[4]}, x);
  for_each_layer(x.shape(), weight.shape(), y, options, [&](int64_t t, const Range& range) {
    const CategoryScope scope(Category::workspace);
    const Tensor part =
        conv2d(images(layers_of(in, range)), weight.select(1, t), {}, of_layer(options));
    accumulate(images(out.slice(0, range.y, range.y + range.count)), part);
  });
  const Tensor result = clone(out.transpose(0, 1));
  if (bias.defined()) accumulate_row(result, bias);
  return result;
}

Tensor conv3d_backward_input(const Tensor& dy, const Tensor& weight, const Shape& x_shape,
                             const Conv3dOptions& options) {
  constexpr const char* kBackward = "conv3d backward";
  check_volumes(kBackward, dy, weight);
  const Shape y = conv3d_shape(kBackward, x_shape, weight.shape(), options);
  check_shape(kBackward, "dy", dy, y);
  const Shape &s = x_shape, layer = without_depth(x_shape);
  const Tensor gradient = by_layers(dy), dx = zero_workspace({s[1], s[0], s[2], s[3], s[4]}, dy);
  for_each_layer(s, weight.shape(), y, options, [&](int64_t t, const Range& range) {
    const CategoryScope scope(Category::workspace);
    const Tensor part = conv2d_backward_input(
        images(gradient.slice(0, range.y, range.y + range.count)), weight.select(1, t),
        {range.count * layer[0], layer[1], layer[2], layer[3]}, of_layer(options));
    add_layers(dx, range, part.view({range.count, s[0], s[2], s[3], s[4]}));
  });
  return clone(dx.transpose(0, 1));
}

Tensor conv3d_backward_weight(const Tensor& dy, const Tensor& x, const Shape& weight_shape,
                              const Conv3dOptions& options) {
  constexpr const char* kBackward = "conv3d backward";
  check_real(kBackward, "dy", dy);
  check_same(kBackward, dy, {&x});
  const Shape y = conv3d_shape(kBackward, x.shape(), weight_shape, options);
  check_shape(kBackward, "dy", dy, y);
  const Tensor in = by_layers(x), gradient = by_layers(dy);
  const DType dtype = dtype_beside(dy);
  Tensor dweight = Tensor::zeros(weight_shape, dtype, dy.device());
  for_each_layer(x.shape(), weight_shape, y, options, [&](int64_t t, const Range& range) {
    const CategoryScope scope(Category::workspace);
    const Tensor part = conv2d_backward_weight(
        images(gradient.slice(0, range.y, range.y + range.count)), images(layers_of(in, range)),
        without_depth(weight_shape), of_layer(options));
    copy_into(dweight.select(1, t), part);
  });
  return dweight;
}

Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose3dOptions& options) {
  check_volumes(kTransposed, x, weight);
  check_beside(kTransposed, x, {&bias});
  const Shape shape = transposed_shape(kTransposed, x.shape(), weight.shape(), options);
  if (bias.defined()) check_shape(kTransposed, "bias", bias, {shape[4]});
  // The convolution from K to C channels has exactly this weight, [C, T, R, S, K/groups].
  const Tensor y = conv3d_backward_input(x, weight, shape, as_conv3d(options));
  if (bias.defined()) accumulate_row(y, bias);
  return y;
}

Tensor conv_transpose3d_backward_input(const Tensor& dy, const Tensor& weight, const Shape& x_shape,
                                       const ConvTranspose3dOptions& options) {
  check_shape("conv_transpose3d backward", "dy", dy,
              transposed_shape("conv_transpose3d backward", x_shape, weight.shape(), options));
  return conv3d(dy, weight, {}, as_conv3d(options));
}

Tensor conv_transpose3d_backward_weight(const Tensor& dy, const Tensor& x,
                                        const Shape& weight_shape,
                                        const ConvTranspose3dOptions& options) {
  return conv3d_backward_weight(x, dy, weight_shape, as_conv3d(options));
}

}  // namespace frugal::ops
