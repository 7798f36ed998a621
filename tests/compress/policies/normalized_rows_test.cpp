// Norms of rows under a lossy policy: rows of other sizes than their neighbours, few rows, and the
// product of a value's noise with itself.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/transformer_functions.h"
#include "compress/policies/fixed_policy.h"
#include "ops/dense/copy.h"
#include "ops/image/group_norm.h"
#include "tests/compress/quantize/samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

constexpr double kEps = 1e-12;

enum class Kind { layer, rms, group, rectified };

// [N, T, C]; group norm normalizes a sample as a whole, the others each row.
struct NormedRows {
  Kind kind = Kind::layer;
  Tensor x, dy;

  NormedRows(Kind of, const Shape& shape) : kind(of), x(noise(shape, 3)), dy(noise(shape, 4)) {}

  int64_t elements() const { return x.numel() / invstd().numel(); }  // normalized together
  Tensor invstd() const {
    return kind == Kind::group ? ops::group_norm(x, 1, {}, {}, kEps).moments.invstd
           : kind == Kind::rms ? ops::rms_norm(x, {}, kEps).moments.invstd
                               : ops::layer_norm(x, {}, {}, kEps).moments.invstd;
  }
  Tensor normalized() const {
    return kind == Kind::group ? ops::group_norm(x, 1, {}, {}, kEps).y
           : kind == Kind::rms ? ops::rms_norm(x, {}, kEps).y
                               : ops::layer_norm(x, {}, {}, kEps).y;
  }
  std::vector<double> gradient(SavePolicy* policy, uint64_t step) const {
    const Variable in(ops::clone(x), true);
    PolicyScope scope(policy, step);
    const Variable y = kind == Kind::group       ? group_norm(in, 1, {}, {}, kEps)
                       : kind == Kind::rms       ? rms_norm(in, {}, kEps)
                       : kind == Kind::rectified ? layer_norm_relu(in, {}, {}, kEps)
                                                 : layer_norm(in, {}, {}, kEps);
    backward(y, ops::clone(dy));
    return in.grad().to_vector();
  }
};

FixedPolicy policy_of(int bits, Rounding rounding) {
  return FixedPolicy({.bits = bits, .min_elements = 0, .rounding = rounding});
}

}  // namespace

TEST_CASE("rows that are far smaller than their neighbours keep their gradient") {
  for (const Kind kind : {Kind::layer, Kind::rms, Kind::group}) {
    CAPTURE(static_cast<int>(kind));
    // The first token of each sample, or each fifth sample, is 10,000 times as small.
    NormedRows norm(kind, kind == Kind::group ? Shape{40, 16, 32} : Shape{8, 65, 64});
    const int64_t c = norm.x.shape().back(), each = norm.elements();
    const int64_t every = kind == Kind::group ? 5 : 65;
    for (int64_t i = 0; i < norm.x.numel(); ++i)
      if (i / each % every == 0) norm.x.mut<float>()[i] *= 1e-4f;
    const std::vector<double> exact = norm.gradient(nullptr, 0), z = norm.normalized().to_vector();
    const std::vector<double> invstd = norm.invstd().to_vector(), g = norm.dy.to_vector();
    double range = 0, most = 0;
    for (int64_t k = 0; k < c; ++k) {
      double lo = HUGE_VAL, hi = -HUGE_VAL;
      for (size_t i = static_cast<size_t>(k); i < z.size(); i += static_cast<size_t>(c)) {
        lo = std::min(lo, z[i]), hi = std::max(hi, z[i]);
        most = std::max(most, std::abs(z[i]));
      }
      range = std::max(range, hi - lo);
    }
    for (const int bits : {4, 3, 2})
      for (const Rounding rounding : {Rounding::dithered, Rounding::stochastic}) {
        CAPTURE(bits);
        FixedPolicy policy = policy_of(bits, rounding);
        // An error of z is at most a step (quantize.h), half of one if the dither is taken away.
        const double step = (range + most / 128) / ((1 << bits) - 1) * (1 + 0x1p-7);
        const double e = rounding == Rounding::dithered ? step / 2 : step;
        for (uint64_t draw = 0; draw < 4; ++draw) {
          const std::vector<double> lossy = norm.gradient(&policy, draw);
          // dx = s (g - mean(g) - z mean(g z)). Errors d of z, with |d|^2 / n <= e^2 and |z|^2 <=
          // n, move this by s |g| (2 e + e^2) at most. What makes up for the mean of the last term
          // adds s |g| e^2 / n.
          for (size_t row = 0; row < invstd.size(); ++row) {
            double off = 0, square = 0;
            for (size_t i = row * static_cast<size_t>(each);
                 i < (row + 1) * static_cast<size_t>(each); ++i) {
              off += std::pow(lossy[i] - exact[i], 2);
              square += g[i] * g[i];
            }
            REQUIRE(std::sqrt(off) <=
                    invstd[row] * std::sqrt(square) * (1.01 * (2 * e + 2 * e * e)));
          }
        }
      }
  }
}

TEST_CASE("norms of few rows keep them whole") {
  for (const Shape& shape : {Shape{40000}, Shape{1, 40000}, Shape{2, 20000}, Shape{7, 5000}})
    for (const Kind kind : {Kind::layer, Kind::rms, Kind::rectified}) {
      NormedRows norm(kind, shape);
      FixedPolicy policy = policy_of(2, Rounding::dithered);
      const std::vector<double> exact = norm.gradient(nullptr, 0),
                                lossy = norm.gradient(&policy, 1);
      // Both are f32, and sums over a row have thousands of terms.
      double most = 0, off = 0;
      for (size_t i = 0; i < exact.size(); ++i) {
        most = std::max(most, std::abs(exact[i]));
        off = std::max(off, std::abs(lossy[i] - exact[i]));
      }
      CHECK(most > 0);
      CHECK(off <= 1e-4 * most);
    }
}

TEST_CASE("noise that meets itself in a narrow row does not shift the gradient") {
  constexpr int kDraws = 1600;
  for (const Kind kind : {Kind::layer, Kind::rms, Kind::group}) {
    CAPTURE(static_cast<int>(kind));
    const NormedRows norm(kind, kind == Kind::group ? Shape{32, 2, 8} : Shape{32, 8, 8});
    FixedPolicy policy = policy_of(2, Rounding::dithered);
    const std::vector<double> exact = norm.gradient(nullptr, 0), invstd = norm.invstd().to_vector(),
                              g = norm.dy.to_vector();
    const auto each = static_cast<size_t>(norm.elements());
    // How much of s g, the first term of dx, the errors are.
    double unit = 0, sum = 0, squares = 0;
    for (size_t i = 0; i < g.size(); ++i) unit += std::pow(invstd[i / each] * g[i], 2);
    for (uint64_t draw = 0; draw < kDraws; ++draw) {
      const std::vector<double> lossy = norm.gradient(&policy, draw);
      double share = 0;
      for (size_t i = 0; i < g.size(); ++i)
        share += (lossy[i] - exact[i]) * invstd[i / each] * g[i] / unit;
      sum += share, squares += share * share;
    }
    const double mean = sum / kDraws;
    const double error = std::sqrt((squares / kDraws - mean * mean) / (kDraws - 1));
    CAPTURE(mean);
    CAPTURE(error);
    // Three levels of a range of about 4: a variance of 0.15, and 1 / n of it.
    CHECK(error < 0.1 / static_cast<double>(each) / 8);
    CHECK(std::abs(mean) < 4 * error);
  }
}
