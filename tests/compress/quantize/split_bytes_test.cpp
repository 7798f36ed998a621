// Split groups: every kernel gives the bytes of the scalar definition, whatever the thread count.
#include <doctest/doctest.h>

#include <cstring>
#include <limits>

#include "core/parallel.h"
#include "tests/compress/quantize/affine_rows.h"
#include "tests/compress/quantize/split_samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

void check_against_reference(const std::vector<float>& x, const Shape& shape, const Tensor& mask,
                             double slope, const QuantizeOptions& options, const SaveInfo& info) {
  CAPTURE(shape.str());
  CAPTURE(options.bits);
  CAPTURE(options.group);
  CAPTURE(slope);
  CAPTURE(static_cast<int>(options.rounding));
  const Quantizer codec(options);
  REQUIRE(codec.can_carry_sign(shape));
  const SplitCase result = split_pack(codec, x, shape, mask, slope, info);
  const GroupLayout& layout = result.quantized().layout();
  REQUIRE(layout.split);
  const SplitWeights weights = split_weights(slope, DType::f32, options.rounding);
  std::vector<uint8_t> expected(static_cast<size_t>(layout.bytes()));
  const CodeStream stream = code_stream(options.seed, info);
  const int64_t nonfinite =
      reference_split_pack(x.data(), mask.data<uint8_t>(), layout, weights, stream,
                           options.rounding != Rounding::nearest, expected.data());
  const bool dithered = options.rounding == Rounding::dithered;
  REQUIRE(result.packed.bytes() == expected);
  REQUIRE(codec.nonfinite_groups() == nonfinite);

  std::vector<float> rebuilt(x.size());
  reference_split_unpack(expected.data(), layout, weights, stream, dithered, rebuilt.data());
  const Tensor y = result.quantized().unpack();
  REQUIRE(y.shape() == shape);
  REQUIRE(std::memcmp(y.raw(), rebuilt.data(), rebuilt.size() * sizeof(float)) == 0);

  std::vector<float> map(static_cast<size_t>(3 * layout.cols));
  for (size_t i = 0; i < map.size(); ++i) map[i] = 0.3f * static_cast<float>(i % 7) - 1;
  reference_split_unpack(expected.data(), layout, weights, stream, dithered, rebuilt.data(),
                         map.data());
  const Tensor affine = Tensor::from(map, {3, layout.cols});
  const Tensor mapped = affine_rows(result.quantized(), 0, shape[0], affine);
  REQUIRE(std::memcmp(mapped.raw(), rebuilt.data(), rebuilt.size() * sizeof(float)) == 0);

  REQUIRE(result.quantized().carries_sign());
  const Tensor bits = result.quantized().unpack_sign();
  REQUIRE(bits.storage()->category() == Category::workspace);
  REQUIRE(same_bytes(bits, mask));
  std::vector<uint8_t> reference(static_cast<size_t>(mask.numel()));
  reference_split_sign(expected.data(), layout, weights, stream, reference.data());
  REQUIRE(std::memcmp(mask.raw(), reference.data(), reference.size()) == 0);
}

}  // namespace

TEST_CASE("every instruction set gives the split reference's bytes") {
  Targets restore;
  const std::vector<Shape> shapes = {{64, 1},   {72, 3},       {256, 16}, {304, 17}, {520, 70},
                                     {64, 200}, {2, 6, 6, 24}, {72, 91},  {64, 36}};
  for (const std::string& target : simd_targets()) {
    CAPTURE(target);
    use_simd_target(target);
    for (int bits = 2; bits <= 16; ++bits)
      for (const Shape& shape : shapes) {
        if (shape.back() > 24 && bits % 4 != 0 && bits > 3) continue;
        const std::vector<float> x = normals(shape.numel(), 7, 3);
        for (Rounding rounding : {Rounding::stochastic, Rounding::dithered, Rounding::nearest}) {
          if (rounding == Rounding::nearest && bits % 5 != 4) continue;  // one path for all
          check_against_reference(x, shape, mask_of(x, shape, Bits::sign), 0,
                                  {bits, 256, GroupAxis::column, rounding, 5}, entry(3, 9));
        }
        if (shape.back() > 24 || (bits > 4 && bits % 4 != 0)) continue;
        for (Bits kind : {Bits::random, Bits::clear, Bits::set, Bits::one})
          for (double slope : {0.0, 0.1, -3.0})
            check_against_reference(x, shape, mask_of(x, shape, kind), slope, {bits}, entry(1));
      }
    for (int64_t group : {8, 24, 64, 512, 65536})
      for (int bits : {3, 4}) {
        const std::vector<float> x = normals(616 * 18, 8);
        for (Rounding rounding : {Rounding::stochastic, Rounding::dithered})
          check_against_reference(x, {616, 18}, mask_of(x, {616, 18}, Bits::sign), 0.1,
                                  {bits, group, GroupAxis::column, rounding, 5}, entry(1));
      }
  }
}

TEST_CASE("odd values give the split reference's bytes on every instruction set") {
  Targets restore;
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const Shape shape{136, 20};
  for (const std::string& target : simd_targets()) {
    CAPTURE(target);
    use_simd_target(target);
    for (const float value : {nan, inf, -inf, 3e38f, -3e38f, 0x1p126f, -0x1p126f, 0x1.8p126f, 1e30f,
                              1e-42f, -1e-40f, 0x1p-126f, -0.0f})
      for (int bits : {2, 4, 8, 11})
        for (size_t at : {size_t{17}, size_t{20 * 136 - 1}}) {
          CAPTURE(value);
          std::vector<float> x = normals(shape.numel(), 3);
          x[at] = value;
          QuantizeOptions dithered{bits};
          dithered.rounding = Rounding::dithered;
          for (const QuantizeOptions& options : {QuantizeOptions{bits}, dithered}) {
            check_against_reference(x, shape, mask_of(x, shape, Bits::sign), 0, options, entry(0));
            check_against_reference(x, shape, mask_of(x, shape, Bits::random), 0.5, options,
                                    entry(0));
          }
        }
    const auto both = [&](const std::vector<float>& x) {
      for (double slope : {0.0, 1e-30, 0.3, 1e30})
        for (Bits kind : {Bits::sign, Bits::random})
          check_against_reference(x, shape, mask_of(x, shape, kind), slope, {4}, entry(0));
    };
    both(normals(shape.numel(), 4, 1e-41f));
    both(normals(shape.numel(), 4, 1e36f));
    both(std::vector<float>(static_cast<size_t>(shape.numel()), nan));
    both(std::vector<float>(static_cast<size_t>(shape.numel()), -2.1f));
    // Ranges that differ as much as they can.
    std::vector<float> wide(static_cast<size_t>(shape.numel()));
    for (size_t i = 0; i < wide.size(); ++i)
      wide[i] = normal({6, 0}, i) * (i % 7 == 0 ? 1e37f : -1e-44f);
    both(wide);
  }
}

TEST_CASE("bytes, values and bits of split groups do not depend on the number of threads") {
  const int before = num_threads();
  for (const Shape& shape : {Shape{5000, 40}, Shape{704, 300}}) {
    const std::vector<float> x = normals(shape.numel(), 11);
    const Tensor mask = mask_of(x, shape, Bits::sign);
    for (int bits : {3, 4}) {
      const Quantizer codec({bits});
      set_num_threads(1);
      const SplitCase one = split_pack(codec, x, shape, mask, 0);
      const Tensor y = one.quantized().unpack();
      for (int threads : {2, 3, 8}) {
        set_num_threads(threads);
        const SplitCase many = split_pack(codec, x, shape, mask, 0);
        CHECK(many.packed.bytes() == one.packed.bytes());
        CHECK(same_bytes(many.quantized().unpack(), y));
        CHECK(same_bytes(many.quantized().unpack_sign(), mask));
      }
    }
  }
  set_num_threads(before);
}

TEST_CASE("payloads with a sign have exactly the bytes of the formula") {
  for (int bits = 2; bits <= 16; ++bits) {
    const Quantizer codec({bits});
    CHECK(codec.packed_bytes({1024, 48}, true) == 4 * 48 * (32 * bits + 8));
    CHECK(codec.packed_bytes({1024, 48}) == 4 * 48 * (32 * bits + 4));
    CHECK(codec.packed_bytes({264, 5}, true) == 2 * 5 * 8 + 5 * 33 * bits);
    CHECK(codec.packed_bytes({260, 5}, true) == codec.packed_bytes({260, 5}));
  }
  const std::vector<float> x = normals(264 * 5, 1);
  const SplitCase result =
      split_pack(Quantizer({3}), x, {264, 5}, mask_of(x, {264, 5}, Bits::sign), 0);
  CHECK(result.quantized().payload().numel() == Quantizer({3}).packed_bytes({264, 5}, true));
  CHECK(result.quantized().payload().storage()->category() == Category::packed);
}

TEST_CASE("tensors whose codes cannot carry a sign take the plain format") {
  struct Case {
    Shape shape;
    QuantizeOptions options;
  };
  for (const Case& c : {Case{{256, 4}, {1}}, Case{{260, 4}, {4}},
                        Case{{256, 4}, {4, 256, GroupAxis::row}}, Case{{0, 4}, {4}}}) {
    CAPTURE(c.shape.str());
    const Quantizer codec(c.options);
    CHECK(!codec.can_carry_sign(c.shape));
    const std::vector<float> x = normals(c.shape.numel(), 5);
    const SplitCase result = split_pack(codec, x, c.shape, mask_of(x, c.shape, Bits::sign), 0);
    CHECK(!result.quantized().carries_sign());
    CHECK(!result.quantized().unpack_sign().defined());
    if (c.shape.numel() > 0) CHECK(!result.quantized().unpack_sign_rows(0, 8).defined());
    CHECK(result.packed.bytes() == pack(codec, x, c.shape).bytes());
  }
  CHECK(Quantizer({4}).can_carry_sign({64, 4}));
  CHECK(Quantizer({4}).can_carry_sign({56, 4}));
  CHECK(Quantizer({4, 8}).can_carry_sign({8, 4}));
}

TEST_CASE("masks of another size, dtype or place and slopes that are no numbers are named") {
  const Shape shape{64, 6};
  const std::vector<float> x = normals(shape.numel(), 5);
  const Quantizer codec;
  CHECK_THROWS_WITH_AS(
      split_pack(codec, x, shape, Tensor::zeros({5, 8}, DType::u8), 0),
      "[quantize] expected a contiguous mask of 48 u8 on cpu for [64, 6], got [5, 8] u8 on cpu",
      Error);
  CHECK_THROWS_AS(split_pack(codec, x, shape, Tensor::zeros({48}, DType::f32), 0), Error);
  CHECK_THROWS_AS(split_pack(codec, x, shape, Tensor::empty({48}, DType::u8, kMeta), 0), Error);
  CHECK_THROWS_WITH_AS(split_pack(codec, x, shape, Tensor(), 0),
                       doctest::Contains("got an undefined one"), Error);
  const Tensor mask = mask_of(x, shape, Bits::sign);
  CHECK_THROWS_WITH_AS(split_pack(codec, x, shape, mask, std::nan("")),
                       "[quantize] expected a finite slope, got nan", Error);
  CHECK_THROWS_AS(split_pack(codec, x, shape, mask, std::numeric_limits<double>::infinity()),
                  Error);
}

TEST_CASE("on meta, split groups only account") {
  const Tensor x = Tensor::empty({640, 33}, DType::f32, kMeta);
  const Tensor mask = ops::empty_bitmask({640, 33}, kMeta);
  const SplitCase result = split_pack(Quantizer({3}), x, mask, 0);
  CHECK(result.quantized().payload().numel() == Quantizer({3}).packed_bytes({640, 33}, true));
  CHECK(result.quantized().unpack().shape() == Shape{640, 33});
  CHECK(result.quantized().unpack_sign().shape() == mask.shape());
  CHECK(result.quantized().unpack_rows(3, 20).shape() == Shape{17, 33});
  CHECK(result.quantized().unpack_sign_rows(3, 19).shape() == Shape{2, 33});
}
