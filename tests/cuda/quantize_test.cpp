// Plain groups on CUDA: the CPU's bytes, and what they unpack to.
#include "compress/quantize/quantize.h"

#include <limits>

#include "tests/compress/quantize/samples.h"
#include "tests/cuda/packing.h"

namespace frugal::compress {
namespace {

void check_groups(const Tensor& x, const QuantizeOptions& options) {
  CAPTURE(describe(x));
  CAPTURE(options.bits);
  CAPTURE(options.group);
  CAPTURE(static_cast<int>(options.axis));
  CAPTURE(static_cast<int>(options.rounding));
  const Quantizer codec(options), codec_there(options);
  const auto here = codec.pack(x, entry(3, 9));
  const auto there = codec_there.pack(to_device(x, gpu::kCuda), entry(3, 9));
  REQUIRE(gpu::same_bits(gpu::payload(*here), gpu::payload(*there)));
  REQUIRE(codec.nonfinite_groups() == codec_there.nonfinite_groups());
  REQUIRE(gpu::same_bits(here->unpack(), there->unpack()));
  REQUIRE(gpu::same_bits(variance_of(*here), variance_of(*there)));
  if (x.dim() == 0) return;
  const int64_t n = x.size(0), third = n / 3;
  for (const auto& [begin, end] : {std::pair{third, n}, {third, 2 * third + 1}, {n, n}})
    if (begin <= end && end <= n)
      REQUIRE(gpu::same_bits(here->unpack_rows(begin, end), there->unpack_rows(begin, end)));
}

}  // namespace

TEST_CASE("CUDA packs and unpacks the CPU's bytes: widths, axes, roundings, shapes") {
  if (!gpu::available()) return;
  const std::vector<Shape> shapes = {
      {1},           {},       {0, 5},   {64, 1},        {65, 3}, {257, 8}, {300, 17}, {270, 44},
      {2, 9, 15, 4}, {7, 130}, {1, 300}, {46, 1, 1, 96}, {63, 5}};
  for (int bits = 1; bits <= 16; ++bits)
    for (size_t s = 0; s < shapes.size(); ++s)
      for (GroupAxis axis : {GroupAxis::column, GroupAxis::row}) {
        // Each width meets each shape, and each rounding and dtype; not each pair of them.
        const auto rounding = static_cast<Rounding>((static_cast<size_t>(bits) + s) % 3);
        const DType dtype = (static_cast<size_t>(bits) / 3 + s) % 2 == 0 ? DType::f32 : DType::bf16;
        check_groups(gpu::normals(shapes[s], dtype, 7, 3, axis == GroupAxis::row ? 8.0f : 0.0f),
                     {bits, 256, axis, rounding, 5});
      }
}

TEST_CASE("CUDA packs the CPU's bytes at the fast widths, every rounding and dtype") {
  if (!gpu::available()) return;
  for (int bits : {1, 2, 4, 8})
    for (Rounding rounding : {Rounding::stochastic, Rounding::nearest, Rounding::dithered})
      for (DType dtype : {DType::f32, DType::bf16})
        for (GroupAxis axis : {GroupAxis::column, GroupAxis::row})
          check_groups(gpu::normals({515, 36}, dtype, 7), {bits, 256, axis, rounding, 5});
}

TEST_CASE("CUDA packs the CPU's bytes in groups of any length") {
  if (!gpu::available()) return;
  for (int64_t group : {8, 24, 64, 264, 512, 65536})
    for (GroupAxis axis : {GroupAxis::column, GroupAxis::row})
      for (int bits : {3, 4})
        check_groups(gpu::normals({613, 18}, DType::f32, 8),
                     {bits, group, axis, Rounding::dithered, 5});
}

TEST_CASE("CUDA packs the CPU's bytes of odd groups, and counts those that are not finite") {
  if (!gpu::available()) return;
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (const float value : {nan, -nan, inf, -inf, 3e38f, -3e38f, 3.4e38f, 1e38f, 1e-42f, -1e-40f,
                            0x1p-126f, -0.0f, 1e30f})
    for (int bits : {1, 4, 7})
      for (GroupAxis axis : {GroupAxis::column, GroupAxis::row}) {
        const int64_t at = bits == 4 ? 290 * 12 - 1 : 17;
        const Tensor x = gpu::normals({290, 12}, DType::f32, 3);
        gpu::put(x, at, value);
        CAPTURE(value);
        check_groups(x, {bits, 256, axis, Rounding::dithered, 1});
      }
  check_groups(gpu::normals({100, 16}, DType::f32, 4, 1e-41f), {4});
  check_groups(Tensor::full({100, 16}, nan), {4});
  const Tensor x = gpu::normals({290, 12}, DType::bf16, 3);
  gpu::put(x, 40, nan);
  check_groups(x, {2, 256, GroupAxis::column, Rounding::dithered});
}

TEST_CASE("payloads on CUDA are packed memory, and go") {
  if (!gpu::available()) return;
  const Tensor x = to_device(gpu::normals({640, 33}, DType::f32, 1), gpu::kCuda);
  const Quantizer codec({3});
  const auto live_by_category = [] { return allocator(gpu::kCuda).report().live; };
  const CategoryBytes before = live_by_category();
  {
    const auto packed = codec.pack(x, {});
    CategoryBytes expected = before;
    expected[static_cast<size_t>(Category::packed)] +=
        (codec.packed_bytes(x.shape()) + 63) / 64 * 64;
    CHECK(live_by_category() == expected);
    CHECK(packed->unpack().storage()->category() == Category::workspace);
  }
  CHECK(live_by_category() == before);
}

TEST_CASE("CUDA packs f32 and bf16 alone") {
  if (!gpu::available()) return;
  CHECK_THROWS_WITH_AS(Quantizer().pack(Tensor::empty({64, 2}, DType::f64, gpu::kCuda), {}),
                       "[quantize] expected f32, bf16 or f16 on cuda, got f64", Error);
}

}  // namespace frugal::compress
