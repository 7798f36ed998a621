#include "ops/sequence/layer_norm.h"

#include <doctest/doctest.h>

#include "ops/image/group_norm.h"
#include "tests/ops/samples.h"

namespace frugal::ops {
namespace {

constexpr double kEps = 1e-5;

struct Rows {
  std::vector<double> y, mean, invstd;
};

// Straight from the definition.
Rows reference(const Tensor& x, const Tensor& weight, const Tensor& bias, bool centred) {
  const int64_t width = x.size(-1);
  Rows out;
  for (int64_t row = 0; row < x.numel() / width; ++row) {
    double mean = 0, squares = 0;
    for (int64_t k = 0; centred && k < width; ++k)
      mean += x.item(row * width + k) / static_cast<double>(width);
    for (int64_t k = 0; k < width; ++k)
      squares += std::pow(x.item(row * width + k) - mean, 2) / static_cast<double>(width);
    const double invstd = 1 / std::sqrt(squares + kEps);
    out.mean.push_back(mean);
    out.invstd.push_back(invstd);
    for (int64_t k = 0; k < width; ++k)
      out.y.push_back((x.item(row * width + k) - mean) * invstd *
                          (weight.defined() ? weight.item(k) : 1) +
                      (bias.defined() ? bias.item(k) : 0));
  }
  return out;
}

bool same(const LayerNormGradients& a, const LayerNormGradients& b) {
  return same_bits(a.dx, b.dx) && same_bits(a.dweight, b.dweight) && same_bits(a.dbias, b.dbias);
}

}  // namespace

TEST_CASE("layer_norm and rms_norm: rows of every width follow the definition") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t width : {1, 2, 5, 15, 16, 17, 33, 64, 65, 255, 1024}) {
      CAPTURE(width);
      // A mean far from 0: one pass over squares would lose the variance.
      const Tensor x = normals({5, width}, 1, dtype, 1, 30);
      const Tensor weight = normals({width}, 2, dtype, 1, 1), bias = normals({width}, 3, dtype);
      const double tolerance = dtype == DType::f32 ? 2e-5 : 1e-12;
      for (const bool affine : {true, false}) {
        const Tensor w = affine ? weight : Tensor(), b = affine ? bias : Tensor();
        const LayerNormOutput out = layer_norm(x, w, b, kEps);
        const Rows expected = reference(x, w, b, true);
        CHECK(error(out.moments.mean, expected.mean) < tolerance);
        if (width > 1) {  // else there is no variance, and eps alone decides
          CHECK(error(out.moments.invstd, expected.invstd) < tolerance);
          CHECK(error(out.y, expected.y) < tolerance);
        }
        CHECK(same_bits(layer_norm_apply(x, out.moments, w, b), out.y));
        CHECK(same_bits(layer_norm(with_gaps(x), w, b, kEps).y, out.y));
        const LayerNormOutput rms = rms_norm(x, w, kEps);
        const Rows scaled = reference(x, w, {}, false);
        CHECK(!rms.moments.mean.defined());
        CHECK(error(rms.y, scaled.y) < tolerance);
        CHECK(same_bits(layer_norm_apply(x, rms.moments, w, {}), rms.y));
      }
    }
}

TEST_CASE("layer_norm: f32 gradients are f64's, in place or not, for any number of threads") {
  for (const int64_t width : {5, 16, 65, 256})
    for (const bool centred : {true, false}) {
      CAPTURE(width);
      CAPTURE(centred);
      const int64_t rows = 601;
      const Tensor x = normals({rows, width}, 1), dy = normals({rows, width}, 2);
      const Tensor weight = normals({width}, 3);
      const auto moments = [&](const Tensor& v, const Tensor& w) {
        return centred ? layer_norm(v, w, {}, kEps).moments : rms_norm(v, w, kEps).moments;
      };
      const Tensor x64 = cast(x, DType::f64), w64 = cast(weight, DType::f64);
      const LayerNormGradients fine =
          layer_norm_backward(cast(dy, DType::f64), x64, moments(x64, w64), w64, {});
      LayerNormGradients one;
      {
        const ThreadsScope threads(1);
        one = layer_norm_backward(dy, x, moments(x, weight), weight, {});
      }
      CHECK(error(one.dx, fine.dx.to_vector()) < 1e-5);
      CHECK(error(one.dweight, fine.dweight.to_vector()) < 1e-4);
      CHECK(error(one.dbias, fine.dbias.to_vector()) < 1e-4);
      const ThreadsScope threads(3);
      CHECK(same(layer_norm_backward(dy, x, moments(x, weight), weight, {}), one));
      const Tensor spent = clone(dy);
      const LayerNormGradients over =
          layer_norm_backward(spent, x, moments(x, weight), weight, {}, true);
      CHECK(over.dx.raw() == spent.raw());
      CHECK(same(over, one));
      const LayerNormGradients some =
          layer_norm_backward(dy, x, moments(x, weight), weight, {false, false, true});
      CHECK(!some.dx.defined());
      CHECK(!some.dweight.defined());
      CHECK(same_bits(some.dbias, one.dbias));
    }
}

TEST_CASE("layer_norm and group_norm: a constant row has its value as mean and no variance") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const double value : {12345.678, -12345.678, 1000000.5, 3e-5, 0.1, 1e15})
      for (const int64_t width : {1, 2, 3, 7, 16, 31, 33, 64, 100, 255, 768, 1000, 4097}) {
        CAPTURE(value);
        CAPTURE(width);
        const Tensor x = Tensor::full({3, width}, value, dtype);
        const Tensor bias = Tensor::full({width}, 0.5, dtype);
        const LayerNormOutput rows = layer_norm(x, {}, bias, kEps);
        const LayerNormOutput groups =
            group_norm(x.view({1, 3 * width, 1}), 1, {}, Tensor::full({1}, 0.5, dtype), kEps);
        for (const LayerNormOutput* out : {&rows, &groups}) {
          // A mean off by a unit in the last place counts 1 / sqrt(eps) times.
          const double ulp = dtype == DType::f32 ? 0 : 4 * std::abs(value) * 0x1p-53;
          CHECK(std::abs(out->moments.mean.item(0) - x.item(0)) <= ulp);
          if (ulp < 1e-3 * std::sqrt(kEps))
            CHECK(out->moments.invstd.item(0) == doctest::Approx(1 / std::sqrt(kEps)));
          for (int64_t i = 0; i < out->y.numel(); ++i)
            REQUIRE(std::abs(out->y.item(i) - 0.5) <= ulp / std::sqrt(kEps));
        }
      }
}

TEST_CASE("layer_norm: large values of small variance keep what their format holds") {
  // Steps of 1 / 16 about 1e6, which f32 holds exactly, with a mean and a variance that it holds.
  for (const int64_t width : {2, 4, 16, 62, 768}) {
    CAPTURE(width);
    const Tensor x = Tensor::empty({1, width});
    for (int64_t k = 0; k < width; ++k) x.mut<float>()[k] = k % 2 == 0 ? 1000000.125f : 999999.875f;
    const LayerNormOutput out = layer_norm(x, {}, {}, 1e-12);
    CHECK(out.moments.mean.item(0) == 1000000);
    CHECK(out.moments.invstd.item(0) == doctest::Approx(8).epsilon(1e-6));
    for (int64_t k = 0; k < width; ++k)
      CHECK(out.y.item(k) == doctest::Approx(k % 2 == 0 ? 1 : -1).epsilon(1e-6));
  }
}

TEST_CASE(
    "layer, RMS and group norm: normalized rows give the output and the gradients of the rows") {
  enum class Kind { layer, rms, group };
  for (const DType dtype : {DType::f32, DType::f64})
    for (const Kind kind : {Kind::layer, Kind::rms, Kind::group}) {
      CAPTURE(static_cast<int>(kind));
      const Tensor x = normals({6, 9, 34}, 1, dtype, 3, 1), dy = normals({6, 9, 34}, 2, dtype);
      const Tensor w = normals({34}, 3, dtype, 1, 1);
      const Tensor b = kind == Kind::rms ? Tensor() : normals({34}, 4, dtype);
      const bool group = kind == Kind::group;
      const auto norm = [&](const Tensor& weight, const Tensor& bias) {
        return group               ? group_norm(x, 2, weight, bias, kEps)
               : kind == Kind::rms ? rms_norm(x, weight, kEps)
                                   : layer_norm(x, weight, bias, kEps);
      };
      const auto gradients = [&](const Tensor& of, const RowMoments& m) {
        return group ? group_norm_backward(dy, of, m, w, {})
                     : layer_norm_backward(dy, of, m, w, {});
      };
      const LayerNormOutput rows = norm({}, {}), whole = norm(w, b);
      const RowMoments m = normalized_moments(rows.moments.invstd, kind != Kind::rms);
      const double tolerance = dtype == DType::f32 ? 2e-5 : 1e-12;
      const Tensor y =
          group ? group_norm_apply(rows.y, m, w, b) : layer_norm_apply(rows.y, m, w, b);
      CHECK(error(y, whole.y.to_vector()) < tolerance);
      const Tensor over = clone(rows.y);
      const uint64_t version = over.storage()->version();
      const Tensor written =
          group ? group_norm_apply(over, m, w, b, true) : layer_norm_apply(over, m, w, b, true);
      CHECK(written.raw() == over.raw());
      CHECK(over.storage()->version() > version);  // who kept the rows would notice
      CHECK(same_bits(written, y));

      const LayerNormGradients of_rows = gradients(rows.y, m), of_x = gradients(x, whole.moments);
      CHECK(error(of_rows.dx, of_x.dx.to_vector()) < tolerance);
      CHECK(error(of_rows.dweight, of_x.dweight.to_vector()) < 10 * tolerance);
      CHECK(same_bits(of_rows.dbias, of_x.dbias));

      // gain adds invstd weight dy (gain - 1) to dx, and changes nothing else.
      RowMoments more = m;
      more.gain = normals({34}, 5, dtype, 0.1f, 1);
      const LayerNormGradients gained = gradients(rows.y, more);
      CHECK(same_bits(gained.dweight, of_rows.dweight));
      std::vector<double> expected;
      for (int64_t i = 0; i < x.numel(); ++i) {
        const int64_t c = i % 34;
        const double r = rows.moments.invstd.item(group ? i / (9 * 34) * 2 + c / 17 : i / 34);
        expected.push_back(of_rows.dx.item(i) +
                           r * w.item(c) * dy.item(i) * (more.gain.item(c) - 1));
      }
      CHECK(error(gained.dx, expected) < tolerance);
    }
}

TEST_CASE("layer_norm: NaN stays in its row") {
  const Tensor x = normals({3, 20}, 1);
  x.mut<float>()[25] = std::numeric_limits<float>::quiet_NaN();
  const Tensor y = layer_norm(x, {}, {}, kEps).y;
  for (int64_t i = 0; i < 60; ++i) CHECK(std::isnan(y.item(i)) == (i / 20 == 1));
}

TEST_CASE("layer_norm: what rebuild and backward refuse") {
  const Tensor x = normals({4, 3}, 1);
  const RowMoments moments = layer_norm(x, {}, {}, kEps).moments;
  CHECK_THROWS_WITH_AS(layer_norm_apply(x, {moments.mean, normals({3}, 1)}, {}, {}),
                       doctest::Contains("[layer_norm] expected invstd of shape [4]"), Error);
  CHECK_THROWS_WITH_AS(layer_norm_backward(normals({4, 2}, 1), x, moments, {}, {}),
                       doctest::Contains("[layer_norm_backward] expected dy of shape [4, 3]"),
                       Error);
  CHECK_THROWS_WITH_AS(layer_norm(normals({4, 3}, 1, DType::f16), {}, {}, kEps),
                       doctest::Contains("[layer_norm] expected x of dtype f32, f64 or bf16"),
                       Error);
}

}  // namespace frugal::ops
