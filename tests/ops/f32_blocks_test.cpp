// bf16 on the CPU: conversions, and kernels that compute in f32.
#include "ops/f32_blocks.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/matmul.h"
#include "ops/image/conv2d.h"
#include "ops/loss/binary_cross_entropy.h"
#include "ops/loss/dice.h"
#include "ops/loss/focal.h"
#include "ops/loss/soft_cross_entropy.h"
#include "ops/precision.h"
#include "ops/simd/convert_loops.h"
#include "tests/error_bounds.h"
#include "tests/ops/samples.h"

namespace frugal::ops {
namespace {

// The values that x has in bf16.
Tensor as_bf16(const Tensor& x) { return cast(x, DType::bf16); }
Tensor widened(const Tensor& x) { return cast(x, DType::f32); }

void check_near(const Tensor& got, const Tensor& expected, double bound) {
  const std::vector<double> a = got.to_vector(), b = expected.to_vector();
  REQUIRE(a.size() == b.size());
  double largest = 1;
  for (const double v : b) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < a.size(); ++i) CHECK(std::abs(a[i] - b[i]) <= bound * largest);
}

// Calls f with products of f32, and with products of bf16 where the processor has them.
template <class F>
void with_products(F f) {
  for (const bool bf16 : {false, true}) {
    if (bf16 && !processor_multiplies_bf16()) continue;
    CAPTURE(bf16);
    set_bf16_products(bf16);
    CHECK(bf16_products() == bf16);
    f(bf16);
  }
  set_bf16_products(true);
}

}  // namespace

TEST_CASE("vectors convert f32 to bf16 as BFloat16 does, and back without a change") {
  std::vector<float> values = {0.0f,
                               -0.0f,
                               1.0f,
                               1.00390625f,
                               1.01171875f,
                               3.3895e38f,
                               1e-40f,
                               -1e-45f,
                               0x1p-126f,
                               std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity()};
  for (const uint32_t bits : {0x7fc00000u, 0xff800001u, 0x7f800001u, 0x00008000u, 0x00018000u})
    values.push_back(std::bit_cast<float>(bits));
  const Tensor random = normals({100}, 7, DType::f32, 3);
  for (int64_t i = 0; i < random.numel(); ++i) values.push_back(random.data<float>()[i]);
  const auto n = static_cast<int64_t>(values.size());
  std::vector<BFloat16> halves(values.size());
  simd::narrow(values.data(), halves.data(), n);
  std::vector<float> back(values.size());
  simd::widen(halves.data(), back.data(), n);
  for (size_t i = 0; i < values.size(); ++i) {
    CAPTURE(i);
    CHECK(halves[i].bits == BFloat16(values[i]).bits);
    CHECK(std::bit_cast<uint32_t>(back[i]) == static_cast<uint32_t>(halves[i].bits) << 16);
  }
}

TEST_CASE("a kernel in f32 over bf16 rounds once, for any number of rows and threads") {
  const Tensor x = as_bf16(normals({37, 301}, 1)), y = as_bf16(normals({37, 301}, 2));
  const Tensor sum = binary(Binary::add, x, y);
  CHECK(sum.dtype() == DType::bf16);
  CHECK(sum.to_vector() == as_bf16(binary(Binary::add, widened(x), widened(y))).to_vector());
  CHECK(unary(Unary::gelu_exact, x).to_vector() ==
        as_bf16(unary(Unary::gelu_exact, widened(x))).to_vector());
}

TEST_CASE("products of bf16 have sums in f32") {
  with_products([](bool) {
    const int64_t k = 3000;
    const Tensor x = as_bf16(normals({40, k}, 1)), w = normals({24, k}, 2), b = normals({24}, 3);
    const Tensor y = linear(x, w, b);
    CHECK(y.dtype() == DType::bf16);
    // The weight is rounded for the product, or not. y is rounded.
    const Tensor exact = linear(cast(x, DType::f64), cast(w, DType::f64), cast(b, DType::f64));
    check_near(y, exact,
               2 * frugal_test::rounding_bound(1, DType::bf16) + frugal_test::sum_bound(k));
    const Tensor dy = as_bf16(normals({40, 24}, 4));
    const Tensor dw = linear_backward_weight(dy, x);
    CHECK(dw.dtype() == DType::f32);  // its operands are not rounded, nor is it
    check_near(dw, linear_backward_weight(cast(dy, DType::f64), cast(x, DType::f64)),
               frugal_test::sum_bound(40));
    const Tensor both = clone(dw);
    add_linear_backward_weight(both, dy, x);
    check_near(both, affine(dw, 2, 0), frugal_test::sum_bound(40));
    CHECK(linear_backward_bias(dy).dtype() == DType::f32);
  });
}

TEST_CASE("convolutions of bf16: gradients of weights are f32") {
  with_products([](bool) {
    for (const int64_t stride : {1, 2})
      for (const int64_t window : {1, 3}) {
        CAPTURE(stride);
        CAPTURE(window);
        const Conv2dOptions o{.stride = {stride, stride}, .padding = {window / 2, window / 2}};
        const Tensor x = as_bf16(normals({2, 9, 8, 24}, 1)),
                     w = normals({40, window, window, 24}, 2);
        const Tensor y = conv2d(x, w, {}, o);
        const Tensor x64 = cast(x, DType::f64), w64 = cast(w, DType::f64);
        const double rounded = 2 * frugal_test::rounding_bound(1, DType::bf16);
        check_near(y, conv2d(x64, w64, {}, o), rounded);
        const Tensor dy = as_bf16(normals(y.shape(), 3)), dy64 = cast(dy, DType::f64);
        check_near(conv2d_backward_input(dy, w, x.shape(), o),
                   conv2d_backward_input(dy64, w64, x.shape(), o), rounded);
        const Tensor dw = conv2d_backward_weight(dy, x, w.shape(), o);
        CHECK(dw.dtype() == DType::f32);
        check_near(dw, conv2d_backward_weight(dy64, x64, w.shape(), o),
                   frugal_test::sum_bound(dy.numel() / 40));
      }
  });
}

// The processor's products of bf16 take subnormal factors and products as 0. So a gradient that is
// far below the others may vanish in a product, and nowhere else.
TEST_CASE("losses of bf16 logits are those of the same numbers in f32, and so are gradients") {
  // Sizes that no block divides.
  const Tensor x = as_bf16(normals({1111, 21}, 1)), wide = widened(x);
  const Tensor shares = as_bf16(affine(unary(Unary::sigmoid, normals(x.shape(), 2)), 1, 0));
  Tensor classes = Tensor::empty({x.size(0)}, DType::i64);
  for (int64_t i = 0; i < classes.numel(); ++i)
    classes.mut<int64_t>()[i] = i % 7 == 0 ? -100 : i * 5 % 21;
  const auto agree = [](const auto& got, const auto& expected) {
    CHECK(same_bits(got.loss, expected.loss));
    CHECK(same_bits(got.gradient, as_bf16(expected.gradient)));
  };
  for (const Tensor& weights : {Tensor(), affine(Tensor::zeros({x.size(0)}), 1, 0.25)})
    agree(binary_cross_entropy(x, shares, {}, weights),
          binary_cross_entropy(wide, widened(shares), {}, weights));
  agree(soft_cross_entropy(x, widened(shares), 0.1),
        soft_cross_entropy(wide, widened(shares), 0.1));
  agree(focal_cross_entropy(x, classes), focal_cross_entropy(wide, classes));
  struct Dice {
    Tensor loss, gradient;
  };
  const auto dice = [&](const Tensor& probabilities) {
    const Dice result{Tensor::empty({}), ops::clone(probabilities)};
    dice_kernel(Cpu{}, result.gradient, classes, result.loss, {});
    return result;
  };
  agree(dice(shares), dice(widened(shares)));
}

TEST_CASE("products of bf16 may take subnormal numbers as 0, other kernels keep them") {
  const Tensor tiny = as_bf16(Tensor::full({1, 4096}, 0x1p-65));
  with_products([&](bool bf16) {
    const double got = matmul(tiny, tiny.transpose(0, 1)).item();
    if (bf16)
      CHECK((got == 0 || got == 0x1p-118));
    else
      CHECK(got == 0x1p-118);
  });
  const Tensor subnormal = as_bf16(Tensor::full({64}, 0x1p-130));
  CHECK(affine(subnormal, 2, 0).item() == 0x1p-129);
  CHECK(binary(Binary::add, subnormal, subnormal).item() == 0x1p-129);
}

}  // namespace frugal::ops
