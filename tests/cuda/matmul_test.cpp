// What the op table's small matrices do not reach: strided batches, broadcasts on either side,
// operands of two dtypes, inner extents of 0, very many matrices.
#include "ops/dense/matmul.h"

#include "ops/cuda/cublas.h"
#include "ops/dense/copy.h"
#include "tests/cuda/compare.h"

namespace frugal {
namespace {

using gpu::distance, gpu::eighths, gpu::there;

}  // namespace

TEST_CASE("CUDA's matmul reads transposed views and broadcasts batches on either side") {
  if (!gpu::available()) return;
  struct Shapes {
    Shape a, b;
  };
  const Shapes all[] = {{{3, 4}, {4, 5}},          {{5, 2, 3, 4}, {5, 2, 4, 6}},
                        {{5, 1, 3, 4}, {2, 4, 6}}, {{2, 3, 4}, {4, 5}},
                        {{3, 4}, {6, 4, 2}},       {{2, 1, 3, 3, 4}, {5, 1, 4, 2}},
                        {{7, 1, 4}, {4, 1}},       {{3, 0}, {0, 2}},
                        {{2, 0, 3}, {2, 3, 4}}};
  for (const Shapes& s : all)
    for (int turned = 0; turned < 4; ++turned) {
      const auto prepared = [](const Tensor& x, bool turn) {
        return turn ? ops::contiguous(x.transpose(-1, -2)).transpose(-1, -2) : x;
      };
      const Tensor a = eighths(s.a, 1), b = eighths(s.b, 2);
      const auto left = [&](const Tensor& x) { return prepared(x, (turned & 1) != 0); };
      const auto right = [&](const Tensor& x) { return prepared(x, (turned & 2) != 0); };
      const Tensor expected = ops::matmul(a, b);
      CAPTURE(s.a);
      CAPTURE(s.b);
      CAPTURE(turned);
      CHECK(distance(ops::matmul(left(there(a)), right(there(b))), expected) < 1e-5);
      CHECK(distance(ops::matmul(left(there(a, DType::bf16)), right(there(b, DType::bf16))),
                     ops::cast(expected, DType::bf16)) < 1e-5);
    }
}

TEST_CASE("beside bf16, parameters and their gradients are f32") {
  if (!gpu::available()) return;
  for (const int64_t out : {8, 13}) {  // the emulated library refuses to add a bias to 13 columns
    const Tensor x = eighths({2, 5, 6}, 1), w = eighths({out, 6}, 2), b = eighths({out}, 3),
                 dy = eighths({2, 5, out}, 4);
    const Tensor gx = there(x, DType::bf16), gdy = there(dy, DType::bf16), gw = there(w);
    const Tensor y = ops::linear(gx, gw, there(b));
    CHECK(y.dtype() == DType::bf16);
    CHECK(distance(y, ops::cast(ops::linear(x, w, b), DType::bf16)) < 0.02);
    const Tensor dx = ops::linear_backward_input(gdy, gw);
    CHECK(dx.dtype() == DType::bf16);
    CHECK(distance(dx, ops::cast(ops::linear_backward_input(dy, w), DType::bf16)) < 1e-5);
    const Tensor dw = ops::linear_backward_weight(gdy, gx);
    CHECK(dw.dtype() == DType::f32);
    CHECK(distance(dw, ops::linear_backward_weight(dy, x)) < 1e-5);
    const Tensor db = ops::linear_backward_bias(gdy);
    CHECK(db.dtype() == DType::f32);
    CHECK(distance(db, ops::linear_backward_bias(dy)) < 1e-5);
  }
}

TEST_CASE("the bias of a product of nothing") {
  if (!gpu::available()) return;
  const Tensor bias = eighths({3}, 1);
  const Tensor y = ops::linear(Tensor::zeros({2, 0}, DType::f32, gpu::kCuda),
                               Tensor::zeros({3, 0}, DType::f32, gpu::kCuda), there(bias));
  CHECK(distance(y, ops::linear(Tensor::zeros({2, 0}), Tensor::zeros({3, 0}), bias)) == 0);
}

TEST_CASE("cuBLASLt itself adds a bias to a product, in each precision") {
  if (!gpu::available()) return;
  gpu::each_precision([](DType dtype) {
    CAPTURE(name_of(dtype));
    const auto zeros = [&](const Shape& shape) { return Tensor::zeros(shape, dtype, gpu::kCuda); };
    const Tensor a = zeros({24, 16}), b = zeros({32, 16}), c = zeros({24, 32}), bias = zeros({32});
    ops::cublas::Gemm p;
    p.m = 24, p.n = 32, p.k = 16;
    p.input = p.output = dtype;
    p.a = {a.raw(), false, 16, 0};
    p.b = {b.raw(), true, 16, 0};
    p.c = c.raw(), p.c_leading = 32;
    REQUIRE(ops::cublas::gemm(p));
    p.bias = bias.raw();
    REQUIRE(ops::cublas::gemm(p));
  });
}

TEST_CASE("a batch of more matrices than a grid has blocks along an axis") {
  if (!gpu::available()) return;
  const Tensor a = eighths({65535 + 3, 1, 2}, 1), b = eighths({65535 + 3, 2, 3}, 2);
  CHECK(distance(ops::matmul(there(a), there(b)), ops::matmul(a, b)) < 1e-5);
}

}  // namespace frugal
