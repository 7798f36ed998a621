// Groups of f16 that hold values at the ends of its range.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "compress/bounded/error_bounded.h"
#include "compress/foreign/forms.h"
#include "compress/quantize/mixed.h"
#include "ops/dense/copy.h"
#include "tests/compress/codec_table.h"
#include "tests/compress/quantize/split_samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

constexpr double kMost = 65504;  // the largest number of f16
constexpr std::array<float, 7> kEnds = {-65504, 65504, -65300, 65100, 64000, -60000, 0};

// Usual values, and one of kEnds at every 37th place: in column c of a group alone the one number
// c, and in other columns several of them.
Tensor with_ends(const Shape& shape) {
  std::vector<float> x = normals(shape.numel(), 11);
  const auto cols = static_cast<size_t>(shape.back());
  for (size_t i = 0; i < x.size(); i += 37) {
    const size_t column = i % cols;
    x[i] = kEnds[column < kEnds.size() ? column : i % kEnds.size()];
  }
  return ops::cast(Tensor::from(x, shape), DType::f16);
}

int64_t not_finite(const Tensor& x) {
  int64_t count = 0;
  for (const double value : x.to_vector()) count += std::isfinite(value) ? 0 : 1;
  return count;
}

}  // namespace

TEST_CASE("finite groups of f16 return finite values within each codec's bound") {
  const Shape shape{300, 10};
  const Tensor x = with_ends(shape);
  const std::vector<double> values = x.to_vector();
  int64_t beyond = 0;
  for (const CodecRow& row : codec_table()) {
    CAPTURE(row.name);
    const std::unique_ptr<Packed> packed = row.make(row, 3)->pack(x, entry(1));
    const Tensor y = packed->unpack();
    REQUIRE(y.dtype() == DType::f16);
    CHECK(not_finite(y) == 0);
    CHECK(not_finite(packed->unpack_rows(8, 24)) == 0);
    // What the codes say in f32, at the nearest place that f16 has.
    const Tensor wide = row.make(row, 3)->pack(ops::cast(x, DType::f32), entry(1))->unpack();
    const std::vector<double> found = y.to_vector(), expected = wide.to_vector();
    int64_t wrong = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      const double nearest = std::clamp(expected[i], -kMost, kMost);
      wrong +=
          found[i] != static_cast<double>(static_cast<float>(Float16(static_cast<float>(nearest))));
      beyond += std::abs(expected[i]) > kMost;
    }
    CHECK(wrong == 0);
  }
  CHECK(beyond > 0);  // otherwise the test shows nothing
}

TEST_CASE("finite groups of f16 that carry signs return finite values") {
  const Shape shape{304, 10};
  const Tensor x = with_ends(shape);
  std::vector<float> values;
  for (const double value : x.to_vector()) values.push_back(static_cast<float>(value));
  for (const Bits mask : {Bits::sign, Bits::random})
    for (const Rounding rounding : {Rounding::stochastic, Rounding::nearest, Rounding::dithered})
      for (int bits = 2; bits <= 8; ++bits)
        for (const double slope : {0.0, 0.1}) {
          CAPTURE(bits);
          CAPTURE(slope);
          const Tensor chosen = mask_of(values, shape, mask);
          const SplitCase split =
              split_pack(Quantizer({bits, 256, GroupAxis::column, rounding}), x, chosen, slope);
          REQUIRE(split.quantized().carries_sign());
          CHECK(not_finite(split.quantized().unpack()) == 0);
        }
}

TEST_CASE("finite samples of several widths in f16 return finite values") {
  const Tensor x = with_ends({12, 64, 10});
  std::vector<int> widths;
  for (int n = 0; n < 12; ++n) widths.push_back(1 + n % 8);
  for (const Rounding rounding : {Rounding::stochastic, Rounding::nearest, Rounding::dithered})
    CHECK(not_finite(MixedQuantizer({256, rounding, 3}).pack(x, {}, widths)->unpack()) == 0);
}

TEST_CASE("what another library keeps as groups of f16 returns finite") {
  const Tensor x = with_ends({256, 10});
  for (const int columns : {0, 10})
    for (const bool positive : {false, true})
      for (int bits = 2; bits <= 8; ++bits) {
        if (positive && columns == 0) continue;
        CAPTURE(bits);
        foreign::GroupOptions options;
        options.bits = bits;
        options.columns = columns;
        options.positive = positive;
        const std::unique_ptr<foreign::Kept> kept = foreign::keep_groups(x, options);
        REQUIRE(kept != nullptr);
        CHECK(not_finite(kept->unpack()) == 0);
      }
}

TEST_CASE(
    "error-bounded codecs return finite values of f16 as finite ones, and infinities as such") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Tensor x = with_ends({300, 10});
  const std::vector<double> values = x.to_vector();
  const Tensor odd =
      ops::cast(Tensor::from(std::vector<float>{1, -kInfinity, kInfinity, 2}, {4, 1}), DType::f16);
  for (const std::string& name : error_bounded_names())
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic})
      for (const double bound : {10.0, 1000.0, 30000.0, 1e30}) {
        if (name == "zfp" && rounding == Rounding::stochastic) continue;
        CAPTURE(name);
        CAPTURE(bound);
        const auto codec = make_error_bounded(name, {rounding, 5});
        const Tensor y = codec->pack(x, bound, entry(2))->unpack();
        CHECK(not_finite(y) == 0);
        const std::vector<double> found = y.to_vector();
        for (size_t i = 0; i < found.size(); ++i)
          REQUIRE(std::abs(found[i] - values[i]) <= bound + kMost * 0x1p-11);
        CHECK(codec->pack(odd, bound, entry(2))->unpack().to_vector() == odd.to_vector());
      }
}
