// Split groups on CUDA: the CPU's bytes, the bits they carry, and what they unpack to.
#include <limits>

#include "compress/quantize/quantize.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/copy.h"
#include "tests/compress/quantize/affine_rows.h"
#include "tests/cuda/packing.h"

namespace frugal::compress {
namespace {

Tensor random_mask(const Shape& shape, uint64_t seed) {
  const Tensor mask = ops::empty_bitmask(shape, kCpu);
  for (int64_t i = 0; i < mask.numel(); ++i)
    mask.mut<uint8_t>()[i] = static_cast<uint8_t>(philox({seed, 0}, static_cast<uint64_t>(i))[0]);
  return mask;
}

// One column of ones, one of zeros.
void plain_columns(const Tensor& mask, int64_t cols) {
  for (int64_t i = 0; i < mask.numel(); ++i)
    if (i % cols < 2) mask.mut<uint8_t>()[i] = i % cols == 0 ? 0xff : 0;
}

void check_split_groups(const Tensor& x, const Tensor& mask, double slope,
                        const QuantizeOptions& options, bool with_rows = true) {
  CAPTURE(describe(x));
  CAPTURE(options.bits);
  CAPTURE(options.group);
  CAPTURE(slope);
  CAPTURE(static_cast<int>(options.rounding));
  const Quantizer codec(options), codec_there(options);
  const Sign sign{mask, slope}, sign_there{to_device(mask, gpu::kCuda), slope};
  SaveInfo info, info_there;
  info.seq = info_there.seq = 4;
  info.sign = &sign, info_there.sign = &sign_there;
  const auto here = codec.pack(x, info);
  const auto there = codec_there.pack(to_device(x, gpu::kCuda), info_there);
  REQUIRE(there->carries_sign());
  REQUIRE(gpu::same_bits(gpu::payload(*here), gpu::payload(*there)));
  REQUIRE(codec.nonfinite_groups() == codec_there.nonfinite_groups());
  REQUIRE(gpu::same_bits(here->unpack(), there->unpack()));
  REQUIRE(gpu::same_bits(here->unpack_sign(), there->unpack_sign()));
  if (!with_rows) return;
  const auto whole = codec.pack(ops::cast(x, DType::f32), info);
  const Tensor affine = gpu::normals({3, x.shape().back()}, DType::f32, 12);
  const Tensor affine_there = to_device(affine, gpu::kCuda);
  for (const auto& [begin, end] :
       {std::pair<int64_t, int64_t>{0, x.size(0)}, {1, x.size(0)}, {x.size(0) / 2, x.size(0)}}) {
    REQUIRE(gpu::same_bits(here->unpack_rows(begin, end), there->unpack_rows(begin, end)));
    REQUIRE(
        gpu::same_bits(here->unpack_sign_rows(begin, end), there->unpack_sign_rows(begin, end)));
    // The CPU maps f32 alone; a bf16 tensor has the codes that it has in f32.
    const Tensor mapped = affine_rows(*whole, begin, end, affine);
    REQUIRE(gpu::same_bits(ops::cast(mapped, x.dtype()),
                           affine_rows(*there, begin, end, affine_there)));
  }
}

}  // namespace

// Small groups of a few columns make blocks that hold many groups, whose extremes fill the shared
// memory that a block has without asking.
TEST_CASE("CUDA packs small groups of any number of columns") {
  if (!gpu::available()) return;
  for (const int64_t group : {8, 16, 24})
    for (int64_t cols = 1; cols <= 33; cols += cols < 20 ? 1 : 4) {
      const Shape shape{group * 80, cols};
      for (const int bits : {2, 4})  // with 2 bits, rows are drawn
        check_split_groups(gpu::normals(shape, DType::f32, 7), random_mask(shape, 8), 0,
                           {bits, group, GroupAxis::column, Rounding::dithered, 5}, false);
    }
}

TEST_CASE("CUDA packs and unpacks the CPU's bytes of split groups") {
  if (!gpu::available()) return;
  const std::vector<Shape> shapes = {{72, 3}, {264, 8}, {304, 17}, {4, 9, 14, 36}};
  for (int bits = 2; bits <= 16; ++bits)
    for (size_t s = 0; s < shapes.size(); ++s) {
      const size_t n = static_cast<size_t>(bits) + s;
      const Shape& shape = shapes[s];
      const Tensor mask = random_mask(shape, n);
      if (n % 2 == 0) plain_columns(mask, shape.back());
      check_split_groups(gpu::normals(shape, n / 2 % 2 == 0 ? DType::f32 : DType::bf16, 5), mask,
                         n % 3 == 0   ? 0
                         : n % 3 == 1 ? 0.3
                                      : 20,
                         {bits, 256, GroupAxis::column, static_cast<Rounding>(n % 3), 8});
    }
  for (int64_t group : {8, 64, 512})
    for (int bits : {2, 4})
      for (DType dtype : {DType::f32, DType::bf16})
        check_split_groups(gpu::normals({600, 12}, dtype, 6), random_mask({600, 12}, 3), 0,
                           {bits, group, GroupAxis::column, Rounding::dithered, 8}, false);
}

TEST_CASE("CUDA packs the CPU's bytes of odd split groups") {
  if (!gpu::available()) return;
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (const float value :
       {nan, inf, -inf, 3e38f, 0x1p126f, -0x1p126f, 1e-42f, -1e-40f, -0.0f, 1e30f})
    for (int bits : {2, 4, 7}) {
      const Tensor x = gpu::normals({296, 12}, DType::f32, 3);
      gpu::put(x, bits == 4 ? 296 * 12 - 1 : 17, value);
      CAPTURE(value);
      check_split_groups(x, random_mask(x.shape(), 2), 0,
                         {bits, 256, GroupAxis::column, Rounding::dithered});
    }
  check_split_groups(Tensor::full({72, 8}, 0.5), random_mask({72, 8}, 2), 0, {4});
}

}  // namespace frugal::compress
