// What the op table's convolutions do not reach: slices that are not aligned, shapes that only the
// loops take, biases of odd channels beside bf16, and slices of a batch.
#include "ops/cuda/cudnn.h"
#include "ops/dense/copy.h"
#include "ops/image/conv2d.h"
#include "ops/image/conv_transpose2d.h"
#include "ops/library_fallbacks.h"
#include "tests/cuda/compare.h"

namespace frugal {
namespace {

using gpu::eighths, gpu::relative_distance, gpu::there;

void check_conv(const Shape& x_shape, const Shape& w_shape, const Conv2dOptions& o) {
  CAPTURE(x_shape);
  CAPTURE(w_shape);
  const Tensor x = eighths(x_shape, 1), w = eighths(w_shape, 2), b = eighths({w_shape[0]}, 3);
  const Tensor y = ops::conv2d(x, w, b, o), dy = eighths(y.shape(), 4);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const double tolerance = dtype == DType::f32 ? 1e-5 : 0.01;
    const Tensor gx = there(x, dtype), gw = there(w), gdy = there(dy, dtype);
    const Tensor gy = ops::conv2d(gx, gw, there(b), o);
    CHECK(gy.dtype() == dtype);
    CHECK(relative_distance(gy, y) < tolerance);
    const Tensor dx = ops::conv2d_backward_input(gdy, gw, x_shape, o);
    CHECK(dx.dtype() == dtype);
    CHECK(relative_distance(dx, ops::conv2d_backward_input(dy, w, x_shape, o)) < tolerance);
    const Tensor dw = ops::conv2d_backward_weight(gdy, gx, w_shape, o);
    CHECK(dw.dtype() == DType::f32);
    CHECK(relative_distance(dw, ops::conv2d_backward_weight(dy, x, w_shape, o)) < tolerance);
  }
}

}  // namespace

TEST_CASE("CUDA's convolutions agree with the CPU's, through the library and by loops") {
  if (!gpu::available()) return;
  Conv2dOptions same, strided, dilated, grouped;
  same.padding = {1, 1};
  strided.stride = {2, 3};
  strided.padding = {2, 0};
  dilated.dilation = {2, 3};
  dilated.padding = {1, 3};
  dilated.stride = {2, 1};
  grouped.groups = 3;
  grouped.dilation = {1, 2};
  check_conv({2, 5, 4, 3}, {6, 3, 3, 3}, same);
  check_conv({2, 5, 4, 3}, {5, 3, 3, 3}, same);  // an odd number of biases
  check_conv({1, 7, 8, 2}, {4, 2, 3, 2}, strided);
  check_conv({2, 8, 9, 2}, {3, 3, 2, 2}, dilated);
  check_conv({1, 4, 6, 6}, {9, 2, 3, 2}, grouped);
  check_conv({40, 3, 3, 2}, {3, 1, 1, 2}, dilated);    // more pixels than a block has threads
  check_conv({2, 24, 25, 3}, {40, 2, 2, 3}, dilated);  // several shares of the pixels
  Conv2dOptions by_channel;
  by_channel.groups = 35;
  by_channel.dilation = {2, 2};
  check_conv({1, 6, 6, 35}, {35, 3, 3, 1}, by_channel);
}

TEST_CASE("convolutions that the library does not take are counted, with their shapes") {
  if (!gpu::available() || !gpu::emulated()) return;  // what cuDNN takes is its own affair
  Conv2dOptions dilated;
  dilated.dilation = {2, 1};
  const Tensor x = there(eighths({1, 6, 6, 2}, 1)), w = there(eighths({4, 3, 3, 2}, 2));
  ops::forget_fallbacks();
  ops::conv2d(x, w, {}, {});
  CHECK(ops::library_fallbacks().empty());
  ops::conv2d(x, w, {}, dilated);
  const Tensor y = ops::conv2d(x, w, {}, dilated);
  ops::conv2d_backward_weight(y, x, w.shape(), dilated);
  const std::vector<ops::LibraryFallback> found = ops::library_fallbacks();
  REQUIRE(found.size() == 2);
  CHECK(found[0].count == 2);
  CHECK(found[0].what.find("conv2d forward f32 x [1, 6, 6, 2] weight [4, 3, 3, 2]") !=
        std::string::npos);
  CHECK(found[1].count == 1);
  CHECK(found[1].what.find("to the weight") != std::string::npos);
  ops::forget_fallbacks();
  CHECK(ops::library_fallbacks().empty());
}

TEST_CASE("cuDNN itself takes an ordinary convolution, in each pass and precision") {
  if (!gpu::available()) return;
  using ops::cudnn::Pass;
  ops::cudnn::Convolution p;
  p.x = {2, 8, 8, 16}, p.w = {32, 3, 3, 16}, p.y = {2, 8, 8, 32};
  p.options.padding = {1, 1};
  gpu::each_precision([&](DType dtype) {
    p.dtype = dtype;
    CAPTURE(name_of(dtype));
    const Tensor x = Tensor::zeros(p.x, dtype, gpu::kCuda),
                 w = Tensor::zeros(p.w, dtype, gpu::kCuda),
                 y = Tensor::zeros(p.y, dtype, gpu::kCuda);
    for (const Pass pass : {Pass::forward, Pass::backward_input, Pass::backward_weight}) {
      p.pass = pass;
      CAPTURE(static_cast<int>(pass));
      REQUIRE(ops::cudnn::convolve(p, {x.raw(), w.raw(), y.raw()}));
    }
  });
}

// Equal bits from plans of other batch sizes: engines add products of the inputs themselves, which
// here are so short that f32 holds every sum.
TEST_CASE("slices of a batch on CUDA") {
  if (!gpu::available()) return;
  Conv2dOptions same;
  same.padding = {1, 1};
  const Tensor x = eighths({3, 3, 3, 3}, 1), w = eighths({2, 3, 3, 3}, 2);
  const Tensor dy = eighths({3, 3, 3, 2}, 3);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor gx = there(x, dtype), gdy = there(dy, dtype), gw = there(w);
    const Tensor expected = ops::conv2d_backward_input(gdy, gw, x.shape(), same);
    const Tensor dx = Tensor::empty(x.shape(), dtype, gpu::kCuda);
    for (int64_t i = 0; i < 3; ++i)
      ops::conv2d_backward_input_into(dx.slice(0, i, i + 1), gdy.slice(0, i, i + 1), gw, same);
    CHECK(dx.to_vector() == expected.to_vector());
    CHECK(ops::conv2d(gx.slice(0, 1, 2), gw, {}, same).to_vector() ==
          ops::conv2d(gx, gw, {}, same).slice(0, 1, 2).to_vector());
  }
}

TEST_CASE("a transposed convolution whose output padding no window reaches") {
  if (!gpu::available()) return;
  ConvTranspose2dOptions o;
  o.dilation = {2, 2};
  o.output_padding = {1, 1};
  const Tensor x = eighths({1, 3, 4, 2}, 1), w = eighths({2, 2, 3, 3}, 2), b = eighths({3}, 3);
  const Tensor y = ops::conv_transpose2d(x, w, b, o), dy = eighths(y.shape(), 4);
  const Tensor gx = there(x), gw = there(w), gdy = there(dy);
  CHECK(relative_distance(ops::conv_transpose2d(gx, gw, there(b), o), y) < 1e-5);
  CHECK(relative_distance(ops::conv_transpose2d_backward_input(gdy, gw, x.shape(), o),
                          ops::conv_transpose2d_backward_input(dy, w, x.shape(), o)) < 1e-5);
  CHECK(relative_distance(ops::conv_transpose2d_backward_weight(gdy, gx, w.shape(), o),
                          ops::conv_transpose2d_backward_weight(dy, x, w.shape(), o)) < 1e-5);
}

}  // namespace frugal
