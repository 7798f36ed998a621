#include "ops/dense/linear_activation.h"

#include <doctest/doctest.h>

#include "ops/dense/bitmask.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/matmul.h"
#include "tests/ops/samples.h"

namespace frugal::ops {

TEST_CASE("linear_gelu: the linear output and its gelu") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t rows : {0, 1, 7, 65, 700}) {
      CAPTURE(rows);
      const Tensor x = normals({rows, 5}, 1, dtype), weight = normals({515, 5}, 2, dtype);
      const Tensor bias = normals({515}, 3, dtype);
      for (const Gelu kind : {Gelu::exact, Gelu::tanh}) {
        const LinearGelu out = linear_gelu(x, weight, bias, kind);
        const Unary op = kind == Gelu::exact ? Unary::gelu_exact : Unary::gelu_tanh;
        CHECK(error(out.h, linear(x, weight, bias).to_vector()) < 1e-6);
        CHECK(same_bits(out.y, unary(op, out.h)));
      }
    }
}

TEST_CASE("gelu_into, gelu_backward_into: the ops' values, also over what they read") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const Gelu kind : {Gelu::exact, Gelu::tanh}) {
      const Unary op = kind == Gelu::exact ? Unary::gelu_exact : Unary::gelu_tanh;
      const Tensor h = normals({33, 301}, 1, dtype, 2), dy = normals({33, 301}, 2, dtype);
      const Tensor variance = Tensor::full(h.shape(), 0.03, dtype);
      const auto same = [](auto into, const Tensor& start, const Tensor& expected) {
        const Tensor out = clone(start);
        const uint64_t version = out.storage()->version();
        into(out);
        CHECK(same_bits(out, expected));
        CHECK(out.storage()->version() > version);
      };
      same([&](const Tensor& y) { gelu_into(kind, y, {}, y); }, h, unary(op, h));
      same([&](const Tensor& y) { gelu_into(kind, h, y, y); }, variance,
           unary_estimate(op, h, variance));
      same([&](const Tensor& dh) { gelu_backward_into(kind, dh, h, {}, dh); }, dy,
           unary_backward(op, dy, h));
      same([&](const Tensor& dh) { gelu_backward_into(kind, dh, h, variance, dh); }, dy,
           unary_backward_estimate(op, dy, h, variance));
      CHECK_THROWS_AS(gelu_into(kind, h, {}, Tensor::empty({33, 300}, dtype)), InternalError);
      CHECK_THROWS_AS(gelu_backward_into(kind, dy, h, Tensor::empty({33}, dtype), dy),
                      InternalError);
    }
}

TEST_CASE("linear_relu: the mask says where y was kept") {
  for (const int64_t rows : {7, 16}) {
    const Tensor x = normals({rows, 5}, 1), weight = normals({9, 5}, 2), bias = normals({9}, 3);
    const Rectified expected = rectify(linear(x, weight, bias), 0, true);
    const LinearRelu out = linear_relu(x, weight, bias, true);
    CHECK(same_bits(out.y, expected.y));
    CHECK(same_bits(out.mask, expected.mask));
    CHECK(!linear_relu(x, weight, {}, false).mask.defined());
  }
}

TEST_CASE("linear_gelu: meta allocates both outputs") {
  const LinearGelu out = linear_gelu(Tensor::empty({2, 3, 4}, DType::f32, kMeta),
                                     Tensor::empty({6, 4}, DType::f32, kMeta), {}, Gelu::exact);
  CHECK(out.h.shape() == Shape{2, 3, 6});
  CHECK(out.y.shape() == Shape{2, 3, 6});
}

}  // namespace frugal::ops
