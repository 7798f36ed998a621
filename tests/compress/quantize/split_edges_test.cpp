// Split groups: values and masks at the edges.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "ops/dense/copy.h"
#include "tests/compress/quantize/split_samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

const Shape kShape{264, 3};

// The bits are exact and each element lies within a step of its class. Where rows are drawn, it
// lies where one code stands for the class, or farther from there than its code says.
SplitCase check_bound(const std::vector<float>& x, const Shape& shape, const Tensor& mask,
                      double slope, int bits) {
  CAPTURE(bits);
  CAPTURE(slope);
  const Quantizer codec({bits});
  SplitCase result = split_pack(codec, x, shape, mask, slope);
  REQUIRE(same_bytes(result.quantized().unpack_sign(), mask));
  REQUIRE(codec.nonfinite_groups() == 0);
  const std::vector<double> y = result.packed.values();
  const std::vector<SplitGroup> groups = result.groups();
  for (size_t i = 0; i < x.size(); ++i) {
    const bool k = bit_at(mask, shape, static_cast<int64_t>(i));
    const double value = static_cast<double>(x[i]), step = groups[i].step(k);
    const double lo = static_cast<double>(groups[i].of[k].lo);
    const double range = static_cast<double>(groups[i].of[k].range);
    REQUIRE(std::isfinite(y[i]));
    if (groups[i].draws) {
      const double place = groups[i].place(k),
                   factor = static_cast<double>(drawn_factor(k ? 1 : 0));
      // The value that is rounded, as far from the place as its code says.
      const double rounded =
          groups[i].codes.count[k] == 1 ? value : place + (y[i] - place) / factor;
      REQUIRE(std::abs(rounded - value) <= step * (1 + 1e-5) + (std::abs(lo) + range) * 0x1p-21);
      if (groups[i].codes.count[k] == 1)
        REQUIRE(std::abs(y[i] - place) <= (std::abs(lo) + range) * 0x1p-22);
      continue;
    }
    REQUIRE(std::abs(y[i] - value) <=
            step * (1 + 1e-5) + (std::abs(value) + std::abs(lo)) * 0x1p-22);
    REQUIRE(lo <= value);
    REQUIRE(value <= (lo + range) + std::abs(lo) * 0x1p-22);
    REQUIRE(y[i] >= lo);
  }
  return result;
}

}  // namespace

TEST_CASE("values of all signs and sizes keep the bound of their class, whatever the mask") {
  const auto n = static_cast<size_t>(kShape.numel());
  std::vector<std::vector<float>> inputs;
  for (float scale : {1e36f, 1e20f, 1.0f, 1e-20f, 1e-36f, 1e-38f, 1e-41f, 1e-44f})
    inputs.push_back(normals(kShape.numel(), 2, scale));
  const std::vector<float> base = normals(kShape.numel(), 3);
  for (float shift : {100.0f, -100.0f, 1e6f, 3.3f}) {  // all positive, all negative
    inputs.push_back(base);
    for (float& value : inputs.back()) value += shift;
  }
  inputs.emplace_back(n, 0x1p126f);
  inputs.push_back(base);
  inputs.back()[5] = 0x1p126f, inputs.back()[9] = -0x1p126f;
  for (const std::vector<float>& x : inputs)
    for (Bits kind : {Bits::sign, Bits::random, Bits::clear, Bits::set, Bits::one})
      for (double slope : {0.0, 0.1, 5.0})
        for (int bits : {2, 4, 16}) check_bound(x, kShape, mask_of(x, kShape, kind), slope, bits);
}

TEST_CASE("a class of one value that bf16 holds returns exactly, beside any other class") {
  std::vector<float> x = normals(kShape.numel(), 4);
  const Tensor mask = mask_of(x, kShape, Bits::sign);
  for (float constant : {0.0f, -0.0f, -1.5f, 2.0f, 0x1p-133f, -0x1p126f}) {
    CAPTURE(constant);
    std::vector<float> input = x;
    for (float& value : input)
      if (!(value > 0)) value = constant;
    for (int bits : {2, 4, 5, 8})
      for (double slope : {0.0, 1.0}) {
        const SplitCase result = check_bound(input, kShape, mask, slope, bits);
        const std::vector<double> y = result.packed.values();
        for (size_t i = 0; i < x.size(); ++i)
          if (!(x[i] > 0)) REQUIRE(y[i] == static_cast<double>(constant));
        CHECK(result.group_of(0, 0).codes.count[0] == 1);
        CHECK(result.group_of(0, 0).codes.count[1] == (1 << bits) - 1);
      }
  }
  const std::vector<float> same(x.size(), 0.5f);  // both classes
  const SplitCase result = split_pack(Quantizer({4}), same, kShape, mask, 0);
  CHECK(result.packed.values() == std::vector<double>(x.size(), 0.5));
  CHECK(same_bytes(result.quantized().unpack_sign(), mask));
}

TEST_CASE("a class of one element is kept to bf16's range or exactly") {
  std::vector<float> x = normals(kShape.numel(), 5);
  const size_t at = x.size() / 2;
  for (float value : {3.25f, 3.14159f, -1000.1f, 1e-40f}) {
    x[at] = value;
    const Tensor mask = mask_of(x, kShape, Bits::one);
    const SplitCase result = check_bound(x, kShape, mask, 0, 4);
    const double error = std::abs(result.packed.values()[at] - static_cast<double>(value));
    CHECK(error <= std::abs(static_cast<double>(value)) * 0x1p-7 + 0x1p-109);
    if (value == 3.25f) CHECK(error == 0);
  }
}

TEST_CASE("NaN, infinities and huge values make their group NaN, and its bits stay exact") {
  const float inf = std::numeric_limits<float>::infinity();
  const Shape shape{512, 20};
  for (float bad : {std::nanf(""), inf, -inf, 0x1.02p126f, -3e38f})
    for (Bits kind : {Bits::sign, Bits::random, Bits::clear, Bits::set})
      for (int bits : {2, 3, 4, 16})
        for (size_t column : {size_t{7}, size_t{19}}) {
          CAPTURE(bad);
          CAPTURE(bits);
          std::vector<float> x = normals(shape.numel(), 1);
          const size_t at = 300 * 20 + column;
          x[at] = bad;
          const Tensor mask = mask_of(x, shape, kind);
          const Quantizer codec({bits});
          const SplitCase result = split_pack(codec, x, shape, mask, 0);
          CHECK(codec.nonfinite_groups() == 1);
          const std::vector<double> y = result.packed.values();
          for (size_t i = 0; i < x.size(); ++i)
            REQUIRE(std::isnan(y[i]) == (i / 20 >= 256 && i % 20 == column));
          REQUIRE(same_bytes(result.quantized().unpack_sign(), mask));
        }
}

TEST_CASE("other dtypes return as they came, with exact bits") {
  const Shape shape{136, 21};
  const std::vector<float> x = normals(shape.numel(), 9);
  const Tensor mask = mask_of(x, shape, Bits::sign);
  const auto check = [&](const Tensor& tensor, double rounding) {
    for (int bits : {2, 4, 11}) {
      CAPTURE(tensor.dtype());
      CAPTURE(bits);
      const Quantizer codec({bits});
      const SplitCase result = split_pack(codec, tensor, mask, 0.1);
      const Tensor y = result.quantized().unpack();
      REQUIRE(y.dtype() == tensor.dtype());
      REQUIRE(same_bytes(result.quantized().unpack_sign(), mask));
      // y is what the codes of the values in f32 give, rounded once more.
      const Tensor single = ops::cast(tensor, DType::f32);
      const SplitCase expected = split_pack(codec, single, mask, 0.1);
      CHECK(result.packed.bytes() == expected.packed.bytes());
      const std::vector<double> got = y.to_vector(), want = expected.packed.values();
      for (size_t i = 0; i < got.size(); ++i)
        REQUIRE(std::abs(got[i] - want[i]) <= std::abs(want[i]) * rounding + 1e-7);
    }
  };
  const Tensor single = Tensor::from(x, shape);
  check(ops::cast(single, DType::f64), 0);
  check(ops::cast(single, DType::bf16), 0x1p-8);
  check(ops::cast(single, DType::f16), 0x1p-11);
}

TEST_CASE("an element next to the kink never crosses it") {
  // Values of both signs as close to 0 as f32 has them, among large ones.
  std::vector<float> x = normals(kShape.numel(), 8, 10);
  for (size_t i = 0; i < x.size(); i += 3) x[i] = (i % 2 == 0 ? 1e-45f : -1e-45f);
  const Tensor mask = mask_of(x, kShape, Bits::sign);
  for (uint64_t step = 0; step < 50; ++step)
    for (int bits : {2, 4}) {
      const SplitCase result = split_pack(Quantizer({bits}), x, kShape, mask, 0, entry(1, step));
      REQUIRE(same_bytes(result.quantized().unpack_sign(), mask));
    }
}
