// Codes of bf16 tensors beside those of f32 tensors of the same numbers.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "ops/dense/copy.h"
#include "tests/compress/quantize/affine_rows.h"
#include "tests/compress/quantize/split_samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

Tensor narrow(const Tensor& x) { return ops::cast(x, DType::bf16); }

// Numbers of bf16, as bf16 and as f32.
struct Twice {
  Tensor narrow, wide;
};
Twice numbers(const Shape& shape, int seed) {
  const Tensor x = narrow(Tensor::from(normals(shape.numel(), seed, 2), shape));
  return {x, ops::cast(x, DType::f32)};
}

void check_plain(const Quantizer& codec, const Shape& shape) {
  const Twice x = numbers(shape, 3);
  const PackedCase one{codec.pack(x.narrow, entry(4))}, other{codec.pack(x.wide, entry(4))};
  REQUIRE(one.bytes() == other.bytes());
  REQUIRE(same_bytes(one.packed->unpack(), narrow(other.packed->unpack())));
  const int64_t rows = shape[0];
  REQUIRE(same_bytes(one.packed->unpack_rows(rows / 3, rows - 1),
                     narrow(other.packed->unpack_rows(rows / 3, rows - 1))));
}

void check_split(const Quantizer& codec, const Shape& shape) {
  const Twice x = numbers(shape, 5);
  const Tensor mask = mask_of(x.wide.to_vector<float>(), shape, Bits::random);
  const SplitCase one = split_pack(codec, x.narrow, mask, 0);
  const SplitCase other = split_pack(codec, x.wide, mask, 0);
  REQUIRE(one.quantized().carries_sign());
  REQUIRE(one.packed.bytes() == other.packed.bytes());
  REQUIRE(same_bytes(one.quantized().unpack(), narrow(other.quantized().unpack())));
}

// Affine of all rows, with a residual or without.
void check_affine(const Quantizer& codec, const Shape& shape) {
  const Twice x = numbers(shape, 6), residual = numbers(shape, 7);
  const int64_t cols = shape.back();
  const Tensor mask = mask_of(x.wide.to_vector<float>(), shape, Bits::sign);
  const Tensor map = noise({3, cols}, 8);
  const SplitCase one = split_pack(codec, x.narrow, mask, 0);
  const SplitCase other = split_pack(codec, x.wide, mask, 0);
  const auto run = [&](const SplitCase& packed, const Tensor& addend) {
    PackedPass pass{PackedPass::Affine{map, addend}};
    pass.mask.in_codes = true;
    REQUIRE(packed.quantized().run(pass));
    return pass.out;
  };
  REQUIRE(same_bytes(run(one, {}), narrow(run(other, {}))));
  REQUIRE(same_bytes(run(one, residual.narrow), narrow(run(other, residual.wide))));
}

}  // namespace

TEST_CASE("bf16 has f32's codes, and its values rounded once, on every instruction set") {
  Targets restore;
  for (const std::string& target : simd_targets()) {
    CAPTURE(target);
    use_simd_target(target);
    for (const Shape& shape : {Shape{64, 1}, Shape{72, 3}, Shape{304, 17}, Shape{520, 70},
                               Shape{6, 4, 6, 24}, Shape{64, 200}, Shape{8, 1024}})
      for (int bits : {1, 2, 3, 4, 5, 8, 11})
        for (Rounding rounding : {Rounding::stochastic, Rounding::dithered, Rounding::nearest}) {
          CAPTURE(shape.str());
          CAPTURE(bits);
          CAPTURE(static_cast<int>(rounding));
          const Quantizer codec({bits, 256, GroupAxis::column, rounding, 5});
          check_plain(codec, shape);
          check_plain(Quantizer({bits, 256, GroupAxis::row, rounding, 5}), shape);
          if (bits == 1) continue;
          check_split(codec, shape);
          check_affine(codec, shape);
        }
  }
}

TEST_CASE("infinities, NaN and subnormal numbers of bf16 return as f32's do") {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float odd : {inf, -inf, std::nanf(""), 0x1p-130f, 0x1.feep127f})
    for (const int64_t place : {int64_t{0}, int64_t{777}}) {
      CAPTURE(odd);
      const Twice x = numbers({64, 40}, 9);
      x.narrow.mut<BFloat16>()[place] = BFloat16(odd);
      x.wide.mut<float>()[place] = static_cast<float>(BFloat16(odd));
      const Quantizer codec({4, 64});
      const PackedCase one{codec.pack(x.narrow, entry(4))}, other{codec.pack(x.wide, entry(4))};
      CHECK(one.bytes() == other.bytes());
      CHECK(same_bytes(one.packed->unpack(), narrow(other.packed->unpack())));
    }
}
