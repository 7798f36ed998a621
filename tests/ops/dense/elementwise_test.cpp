#include "ops/dense/elementwise.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "ops/dense/reduce.h"
#include "tests/ops/samples.h"
#include "tests/unary_ops.h"

namespace frugal::ops {
namespace {

struct UnaryCase {
  Unary op;
  double lo, hi;  // where it is sampled
  std::function<double(double)> f;
  std::function<double(double)> slope;  // derivative at an input; null: there is none
  bool from_output;                     // the gradient takes the output
};

double cdf(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }
double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

std::vector<UnaryCase> unary_cases() {
  const double density = 1 / std::sqrt(2 * std::acos(-1.0)), k = std::sqrt(2 / std::acos(-1.0));
  const auto inner = [k](double x) { return k * (x + 0.044715 * x * x * x); };
  return {
      {Unary::neg, -5, 5, [](double x) { return -x; }, nullptr, false},
      {Unary::exp, -20, 20, [](double x) { return std::exp(x); },
       [](double x) { return std::exp(x); }, true},
      {Unary::log, 1e-3, 50, [](double x) { return std::log(x); }, [](double x) { return 1 / x; },
       false},
      {Unary::sqrt, 1e-3, 50, [](double x) { return std::sqrt(x); },
       [](double x) { return 0.5 / std::sqrt(x); }, true},
      {Unary::sigmoid, -12, 12, sigmoid_of, [](double x) { return sigmoid_of(x) * sigmoid_of(-x); },
       true},
      {Unary::tanh, -8, 8, [](double x) { return std::tanh(x); },
       [](double x) { return 1 - std::tanh(x) * std::tanh(x); }, true},
      {Unary::gelu_exact, -8, 8, [](double x) { return x * cdf(x); },
       [density](double x) { return cdf(x) + x * density * std::exp(-x * x / 2); }, false},
      {Unary::gelu_tanh, -8, 8, [inner](double x) { return x / 2 * (1 + std::tanh(inner(x))); },
       [inner, k](double x) {
         const double t = std::tanh(inner(x));
         return (1 + t) / 2 + x / 2 * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x);
       },
       false},
      {Unary::silu, -12, 12, [](double x) { return x * sigmoid_of(x); },
       [](double x) { return sigmoid_of(x) * (1 + x * sigmoid_of(-x)); }, false},
  };
}

Tensor ramp(int64_t n, double lo, double hi, DType dtype) {
  const Tensor x = Tensor::empty({n}, DType::f64);
  for (int64_t i = 0; i < n; ++i)
    x.mut<double>()[i] = lo + (hi - lo) * static_cast<double>(i) / static_cast<double>(n);
  return cast(x, dtype);
}

// The largest relative error of f over a ramp, floor: what counts as absolute.
double relative_error(Unary op, double lo, double hi, const std::function<double(double)>& f,
                      double floor) {
  const Tensor x = ramp(20001, lo, hi, DType::f32), y = unary(op, x);
  double worst = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double expected = f(x.item(i));
    worst = std::max(worst, std::abs(y.item(i) - expected) / std::max(std::abs(expected), floor));
  }
  return worst;
}

const std::vector<double> kSpecial = {kNan, kInf, -kInf, 0.0, -0.0, 1e-40, -1e-40, 200, -200};

}  // namespace

TEST_CASE("sigmoid: small probabilities keep their digits") {
  // The error of exp(-x) grows with x. findings/onnxruntime_sigmoid.sh
  CHECK(relative_error(Unary::sigmoid, -80, -8, sigmoid_of, 0) < 80 * 0x1p-23);
}

TEST_CASE("unary: values and gradients agree with their formulas") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const UnaryCase& c : unary_cases())
      for (const int64_t n : {1, 15, 4099}) {
        CAPTURE(name_of(c.op));
        const double bound = dtype == DType::f32 ? 1e-6 : 1e-14;
        const Tensor x = ramp(n, c.lo, c.hi, dtype), y = unary(c.op, x);
        std::vector<double> expected, gradient;
        const Tensor dy = normals({n}, 4, dtype);
        for (int64_t i = 0; i < n; ++i) {
          expected.push_back(c.f(x.item(i)));
          if (c.slope) gradient.push_back(dy.item(i) * c.slope(x.item(i)));
        }
        CHECK(error(y, expected) < bound);
        if (!c.slope) continue;
        CHECK(error(unary_backward(c.op, dy, c.from_output ? y : x), gradient) < 4 * bound);
      }
}

TEST_CASE("unary: the cases here have each op once") {
  const std::vector<Unary> all = frugal_test::unary_ops();
  const std::vector<UnaryCase> cases = unary_cases();
  CHECK(all.size() == cases.size());
  for (const Unary op : all) {
    CAPTURE(name_of(op));
    CHECK(std::count_if(cases.begin(), cases.end(),
                        [&](const UnaryCase& c) { return c.op == op; }) == 1);
  }
}

TEST_CASE("unary: f32 keeps its relative precision where the value is small") {
  constexpr double ulp = 0x1p-23;
  const auto e = [](double x) { return std::exp(x); };
  CHECK(relative_error(Unary::exp, -87, 88.7, e, 1e-37) < 2 * ulp);
  CHECK(relative_error(
            Unary::tanh, -1e-3, 1e-3, [](double x) { return std::tanh(x); }, 1e-9) < 2 * ulp);
  CHECK(relative_error(
            Unary::tanh, -10, 10, [](double x) { return std::tanh(x); }, 1e-9) < 4 * ulp);
  CHECK(relative_error(Unary::sigmoid, -80, 20, sigmoid_of, 1e-37) < 4 * ulp);
  // gelu's tail is a difference of nearly equal numbers when written with erf.
  CHECK(relative_error(
            Unary::gelu_exact, -9, 9, [](double x) { return x * cdf(x); }, 1e-30) < 5e-6);
  CHECK(relative_error(
            Unary::gelu_exact, -1, 1, [](double x) { return x * cdf(x); }, 1e-9) < 1e-6);
}

TEST_CASE("unary: special values are those of the standard library") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = cast(Tensor::from(kSpecial, {9}), dtype);
    for (const UnaryCase& c : unary_cases()) {
      CAPTURE(name_of(c.op));
      std::vector<double> expected;
      for (int64_t i = 0; i < 9; ++i) {
        const double y = c.f(x.item(i));  // beyond f32's range it is an infinity or 0
        const bool narrow = dtype == DType::f32;
        expected.push_back(narrow ? static_cast<double>(static_cast<float>(y)) : y);
      }
      // x * P(x) of -inf is -inf * 0: all agree on NaN.
      CHECK(error(unary(c.op, x), expected) < 1e-6);
    }
  }
  CHECK(unary(Unary::exp, Tensor::full({}, 88.72)).item() < 3.41e38);
  CHECK(unary(Unary::exp, Tensor::full({}, 88.73)).item() == kInf);
  CHECK(unary(Unary::exp, Tensor::full({}, -104)).item() == 0);
}

TEST_CASE("unary: NaN has one gradient, whole vectors and the rest alike") {
  // findings/torch_nan_place.sh
  for (const DType dtype : {DType::f32, DType::f64})
    for (const UnaryCase& c : unary_cases()) {
      CAPTURE(name_of(c.op));
      if (!c.slope) continue;
      const Tensor x = Tensor::full({67}, kNan, dtype), dy = Tensor::full({67}, 1, dtype);
      const std::vector<double> dx =
          unary_backward(c.op, dy, c.from_output ? unary(c.op, x) : x).to_vector();
      for (const double each : dx)
        CHECK((each == dx[0] || (std::isnan(each) && std::isnan(dx[0]))));
    }
}

TEST_CASE("binary: broadcasting agrees with the definition, on every path") {
  struct Pair {
    Shape a, b;
  };
  const std::vector<Pair> pairs = {{{7}, {7}},
                                   {{5000}, {5000}},
                                   {{3, 5}, {3, 5}},
                                   {{}, {}},
                                   {{40, 17}, {17}},
                                   {{17}, {40, 17}},
                                   {{40, 17}, {}},
                                   {{}, {40, 17}},
                                   {{9000}, {1}},
                                   {{1}, {9000}},
                                   {{6, 1}, {1, 5}},
                                   {{2, 3, 4}, {3, 1}},
                                   {{2, 1, 4}, {3, 1}},
                                   {{2, 3, 4, 5}, {4, 5}},
                                   {{2, 3, 4, 5}, {3, 1, 5}},
                                   {{4, 1, 3}, {1, 5, 3}},
                                   {{2, 3, 4, 5}, {2, 1, 1, 5}},
                                   {{300, 20}, {300, 1}},
                                   {{3, 9000}, {9000}},
                                   {{2, 9000}, {2, 1}},
                                   {{9, 500, 3}, {9, 1, 3}},
                                   {{1, 1, 1}, {2, 2}},
                                   {{0, 3}, {3}}};
  const auto apply = [](Binary op, double a, double b) {
    return op == Binary::add   ? a + b
           : op == Binary::sub ? a - b
           : op == Binary::mul ? a * b
                               : a / b;
  };
  for (const DType dtype : {DType::f32, DType::f64})
    for (const Pair& pair : pairs)
      for (const Binary op : {Binary::add, Binary::sub, Binary::mul, Binary::div}) {
        CAPTURE(pair.a.str());
        CAPTURE(pair.b.str());
        const Tensor a = normals(pair.a, 1, dtype), b = normals(pair.b, 2, dtype, 0.3, 2);
        const Tensor y = binary(op, a, b);
        CHECK(y.shape() == broadcast_shape("test", pair.a, pair.b));
        const std::vector<double> wide_a = broadcast_to(a, y.shape()).to_vector();
        const std::vector<double> wide_b = broadcast_to(b, y.shape()).to_vector();
        std::vector<double> expected;
        for (size_t i = 0; i < wide_a.size(); ++i)
          expected.push_back(apply(op, wide_a[i], wide_b[i]));
        CHECK(error(y, expected) < (dtype == DType::f32 ? 1e-7 : 1e-15));
        if (dtype != DType::f32) continue;
        // bf16 has the bits of f32, rounded.
        const Tensor half_a = cast(a, DType::bf16), half_b = cast(b, DType::bf16);
        const Tensor exact = binary(op, cast(half_a, DType::f32), cast(half_b, DType::f32));
        CHECK(same_bits(binary(op, half_a, half_b), cast(exact, DType::bf16)));
      }
}

TEST_CASE("binary: transposed operands and slices are read through their strides") {
  const Tensor a = normals({30, 20}, 1), b = normals({20, 30}, 2);
  CHECK(same_bits(add(a, b.transpose(0, 1)), add(a, contiguous(b.transpose(0, 1)))));
  CHECK(same_bits(mul(a.transpose(0, 1), b), mul(contiguous(a.transpose(0, 1)), b)));
  const Tensor half = cast(a, DType::bf16), other = cast(b, DType::bf16);
  CHECK(same_bits(mul(half.transpose(0, 1), other), mul(contiguous(half.transpose(0, 1)), other)));
  const Tensor part = a.slice(1, 3, 11);
  CHECK(same_bits(sub(part, part.slice(0, 0, 1)),
                  sub(contiguous(part), contiguous(part.slice(0, 0, 1)))));
}

TEST_CASE("affine: x * factor + term") {
  const Tensor x = normals({1001}, 1, DType::f64);
  std::vector<double> expected;
  for (const double v : x.to_vector()) expected.push_back(v * -1.5 + 0.25);
  CHECK(error(affine(x, -1.5, 0.25), expected) == 0);
  CHECK(error(affine(cast(x, DType::f32), -1.5, 0.25), expected) < 1e-6);
}

TEST_CASE("elementwise: the same bits for every thread count") {
  const Tensor x = normals({1237, 83}, 1), dy = normals({1237, 83}, 2), row = normals({83}, 3);
  const auto all = [&] {
    std::vector<Tensor> out{add(x, dy), mul(x, row), div(row, x), affine(x, 1.1, 0.3)};
    for (const UnaryCase& c : unary_cases()) {
      out.push_back(unary(c.op, x));
      if (c.slope) out.push_back(unary_backward(c.op, dy, x));
    }
    return out;
  };
  const std::vector<Tensor> first = all();
  for (const int threads : {1, 2, 3}) {
    const ThreadsScope scope(threads);
    const std::vector<Tensor> again = all();
    bool equal = true;
    for (size_t i = 0; i < first.size(); ++i) equal = equal && same_bits(first[i], again[i]);
    CHECK(equal);
  }
  CHECK(same_bits(unary(Unary::gelu_exact, with_gaps(x)), unary(Unary::gelu_exact, x)));
}

TEST_CASE("elementwise: empty and meta tensors") {
  const Tensor empty = Tensor::empty({0, 3}), meta = Tensor::empty({2, 3}, DType::f32, kMeta);
  CHECK(unary(Unary::exp, empty).numel() == 0);
  CHECK(unary_backward(Unary::exp, empty, empty).numel() == 0);
  CHECK(affine(empty, 1, 1).numel() == 0);
  CHECK(add(meta, Tensor::empty({3}, DType::f32, kMeta)).shape() == Shape{2, 3});
  CHECK(unary(Unary::silu, meta).device() == kMeta);
  CHECK(unary_backward(Unary::silu, meta, meta).device() == kMeta);
}

TEST_CASE("elementwise: errors name the op") {
  const Tensor x = Tensor::zeros({2, 3});
  CHECK_THROWS_WITH_AS(add(x, Tensor::zeros({4})), doctest::Contains("[add] expected"), Error);
  CHECK_THROWS_WITH_AS(mul(x, Tensor::zeros({3}, DType::f64)),
                       doctest::Contains("[mul] expected tensors of one dtype and device"), Error);
  CHECK_THROWS_WITH_AS(sub(x, {}), doctest::Contains("[sub] expected b to be a tensor"), Error);
  CHECK_THROWS_WITH_AS(div(Tensor::zeros({2}, DType::i64), Tensor::zeros({2}, DType::i64)),
                       doctest::Contains("[div] expected a of dtype f32, f64 or bf16"), Error);
  CHECK_THROWS_WITH_AS(add(x, Tensor::empty({3}, DType::f32, kMeta)),
                       doctest::Contains("[add] expected tensors of one dtype and device"), Error);
  CHECK_THROWS_WITH_AS(unary(Unary::gelu_tanh, Tensor::zeros({2}, DType::f16)),
                       doctest::Contains("[gelu] expected x of dtype f32, f64 or bf16"), Error);
  CHECK_THROWS_WITH_AS(unary_backward(Unary::tanh, x, Tensor::zeros({3})),
                       doctest::Contains("[tanh] expected dy of shape [3]"), Error);
  CHECK_THROWS_WITH_AS(affine(Tensor::zeros({2}, DType::f16), 1, 0),
                       doctest::Contains("[scale] expected x of dtype f32, f64 or bf16"), Error);
}

TEST_CASE("an estimate takes away what noise adds on average, in the value and in the gradient") {
  // x is known to +-h, each with probability 1/2: variance h^2. What is left is of fourth order.
  const double h = 0.1;
  int smooth = 0;
  for (const DType dtype : {DType::f32, DType::f64})
    for (const Unary op : frugal_test::unary_ops()) {
      if (!has_estimate(op)) continue;
      ++smooth;
      CAPTURE(static_cast<int>(op));
      const Tensor x = ramp(1000, -5, 5, dtype), dy = Tensor::full(x.shape(), 3, dtype);
      const Tensor low = affine(x, 1, -h), high = affine(x, 1, h);
      const Tensor variance = Tensor::full(x.shape(), h * h, dtype);
      const auto mean = [](const Tensor& a, const Tensor& b) {
        return affine(add(a, b), 0.5, 0).to_vector();
      };
      const auto exact = unary(op, x).to_vector(), slope = unary_backward(op, dy, x).to_vector();
      const auto plain = mean(unary(op, low), unary(op, high));
      const auto plain_slope = mean(unary_backward(op, dy, low), unary_backward(op, dy, high));
      const auto corrected =
          mean(unary_estimate(op, low, variance), unary_estimate(op, high, variance));
      const auto corrected_slope = mean(unary_backward_estimate(op, dy, low, variance),
                                        unary_backward_estimate(op, dy, high, variance));
      double before = 0, after = 0, before_slope = 0, after_slope = 0;
      for (size_t i = 0; i < exact.size(); ++i) {
        before = std::max(before, std::abs(plain[i] - exact[i]));
        after = std::max(after, std::abs(corrected[i] - exact[i]));
        before_slope = std::max(before_slope, std::abs(plain_slope[i] - slope[i]));
        after_slope = std::max(after_slope, std::abs(corrected_slope[i] - slope[i]));
      }
      // The tanh form's derivatives are approximated by the exact form's.
      const double share = op == Unary::gelu_tanh ? 0.06 : 0.02;
      CHECK(after < share * before);
      CHECK(after_slope < 2 * share * before_slope);
      CHECK(before > 1e-3);
      // Without noise it is the op itself.
      const Tensor none = Tensor::zeros(x.shape(), dtype);
      const double bound = dtype == DType::f32 ? 1e-6 : 1e-14;
      CHECK(error(unary_estimate(op, x, none), exact) < bound);
      CHECK(error(unary_backward_estimate(op, dy, x, none), slope) < bound);
    }
  CHECK(smooth == 2 * 3);  // gelu in two forms and silu
  CHECK_THROWS_WITH_AS(unary_estimate(Unary::silu, Tensor::zeros({2}), Tensor::zeros({3})),
                       doctest::Contains("[silu] expected the variance of shape [2]"), Error);
  CHECK_THROWS_AS(unary_estimate(Unary::exp, Tensor::zeros({2}), Tensor::zeros({2})),
                  InternalError);
}

}  // namespace frugal::ops
