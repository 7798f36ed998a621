// The format: every kernel gives the bytes of the scalar definition, whatever the thread count.
#include <doctest/doctest.h>

#include <cstring>

#include "compress/quantize/quantize.h"
#include "core/parallel.h"
#include "tests/compress/quantize/samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

void check_against_reference(const std::vector<float>& x, const Shape& shape,
                             const QuantizeOptions& options, const SaveInfo& info) {
  CAPTURE(shape.str());
  CAPTURE(options.bits);
  CAPTURE(options.group);
  CAPTURE(static_cast<int>(options.axis));
  CAPTURE(static_cast<int>(options.rounding));
  const Quantizer codec(options);
  const PackedCase result = pack(codec, x, shape, info);
  const GroupLayout& layout = result.quantized().layout();
  std::vector<uint8_t> expected(static_cast<size_t>(layout.bytes()));
  const CodeStream stream = code_stream(options.seed, info);
  const int64_t nonfinite = reference_pack(x.data(), layout, stream,
                                           options.rounding != Rounding::nearest, expected.data());
  REQUIRE(result.bytes() == expected);
  REQUIRE(codec.nonfinite_groups() == nonfinite);

  std::vector<float> rebuilt(x.size());
  reference_unpack(expected.data(), layout, rebuilt.data(),
                   options.rounding == Rounding::dithered ? &stream : nullptr);
  const Tensor y = result.packed->unpack();
  REQUIRE(y.shape() == shape);
  if (!x.empty())
    REQUIRE(std::memcmp(y.raw(), rebuilt.data(), rebuilt.size() * sizeof(float)) == 0);
}

}  // namespace

TEST_CASE("every instruction set gives the reference's bytes") {
  Targets restore;
  const std::vector<Shape> shapes = {
      {1},      {3},           {64, 1},   {65, 3}, {257, 16}, {300, 17},    {515, 70}, {100, 5},
      {7, 130}, {2, 6, 6, 24}, {64, 200}, {},      {0, 5},    {2, 1, 9, 1}, {70, 91},  {66, 36}};
  REQUIRE(!simd_targets().empty());
  for (const std::string& target : simd_targets()) {
    CAPTURE(target);
    use_simd_target(target);
    for (int bits = 1; bits <= 16; ++bits)
      for (const Shape& shape : shapes)
        for (GroupAxis axis : {GroupAxis::column, GroupAxis::row})
          for (Rounding rounding : {Rounding::stochastic, Rounding::dithered, Rounding::nearest}) {
            if (rounding == Rounding::nearest && bits % 5 != 4) continue;  // one path for all
            check_against_reference(normals(shape.numel(), 7, 3), shape,
                                    {bits, 256, axis, rounding, 5}, entry(3, 9));
          }
    for (int64_t group : {8, 24, 64, 512, 65536})
      for (int bits : {3, 4})
        for (GroupAxis axis : {GroupAxis::column, GroupAxis::row})
          for (Rounding rounding : {Rounding::stochastic, Rounding::dithered})
            check_against_reference(normals(613 * 18, 8), {613, 18},
                                    {bits, group, axis, rounding, 5}, entry(1));
  }
}

TEST_CASE("odd groups give the reference's bytes on every instruction set") {
  Targets restore;
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (const std::string& target : simd_targets()) {
    CAPTURE(target);
    use_simd_target(target);
    for (const float value :
         {nan, inf, -inf, 3e38f, -3e38f, 3.4e38f, 1e38f, 1e-42f, -1e-40f, 0x1p-126f, -0.0f, 1e30f})
      for (int bits : {1, 4, 7, 16})
        for (GroupAxis axis : {GroupAxis::column, GroupAxis::row})
          for (size_t at : {size_t{17}, size_t{20 * 290 - 1}}) {
            CAPTURE(value);
            std::vector<float> x = normals(20 * 290, 3);
            x[at] = value;
            for (Rounding rounding : {Rounding::stochastic, Rounding::dithered})
              check_against_reference(x, {290, 20}, {bits, 256, axis, rounding, 1}, entry(0));
          }
    std::vector<float> tiny = normals(100 * 16, 4, 1e-41f);
    check_against_reference(tiny, {100, 16}, {4, 256, GroupAxis::column}, entry(0));
    check_against_reference(std::vector<float>(1600, nan), {100, 16}, {4}, entry(0));
  }
}

TEST_CASE("bytes do not depend on the number of threads") {
  const int before = num_threads();
  for (const Shape& shape : {Shape{5000, 40}, Shape{700, 300}, Shape{40, 9000}}) {
    const std::vector<float> x = normals(shape.numel(), 11);
    for (int bits : {1, 3, 4}) {
      const Quantizer codec({bits});
      set_num_threads(1);
      const std::vector<uint8_t> one = pack(codec, x, shape).bytes();
      for (int threads : {2, 3, 8}) {
        set_num_threads(threads);
        const PackedCase many = pack(codec, x, shape);
        CHECK(many.bytes() == one);
        const std::vector<double> y = many.values();
        set_num_threads(1);
        CHECK(many.values() == y);
      }
    }
  }
  set_num_threads(before);
}

TEST_CASE("payloads have exactly the bytes of the formula") {
  const auto bytes = [](const Shape& shape, int bits, GroupAxis axis = GroupAxis::column,
                        int64_t group = 256) {
    return Quantizer({bits, group, axis}).packed_bytes(shape);
  };
  for (int bits = 1; bits <= 16; ++bits) {
    // Full groups: 32 bytes a bit and group, and 4 of metadata.
    CHECK(bytes({1024, 48}, bits) == 4 * 48 * (32 * bits + 4));
    CHECK(bytes({4, 16, 16, 48}, bits) == 4 * 48 * (32 * bits + 4));
    CHECK(bytes({1024, 48}, bits, GroupAxis::row) == 192 * (32 * bits + 4));
    CHECK(bytes({1024, 48}, bits, GroupAxis::column, 64) == 16 * 48 * (8 * bits + 4));
  }
  CHECK(bytes({259, 5}, 4) == 2 * 5 * 4 + (128 + 2) * 5);     // 3 rows: 2 byte rows
  CHECK(bytes({259, 5}, 3) == 2 * 5 * 4 + (96 + 1 + 1) * 5);  // a plane of 2 and one of 1
  CHECK(bytes({259, 5}, 7) == 2 * 5 * 4 + (224 + 2 + 1 + 1) * 5);
  CHECK(bytes({63, 16}, 4) == 16 * (4 + 32));  // few rows: still groups of a column
  CHECK(bytes({1, 16}, 4) == 16 * (4 + 1));
  CHECK(bytes({1}, 4) == 4 + 1);
  CHECK(bytes({0, 7}, 4) == 0);
  CHECK(make_layout({64, 3}, GroupAxis::column, 256, 4).shared == false);
  CHECK(make_layout({1, 3}, GroupAxis::column, 256, 4).shared == false);
  CHECK(make_layout({2, 1, 1, 3}, GroupAxis::nchw, 256, 4).shared == false);
  CHECK(make_layout({2, 64, 3}, GroupAxis::nchw, 256, 4).shared == true);
  CHECK(make_layout({128, 3}, GroupAxis::nchw, 256, 4).shared == true);
}

TEST_CASE("payloads are packed memory, results workspace, and meta tensors only account") {
  for (Device device : {kCpu, kMeta}) {
    const Tensor x = Tensor::empty({640, 33}, DType::f32, device);
    if (device == kCpu) std::memset(x.raw(), 0, static_cast<size_t>(x.nbytes()));
    const Quantizer codec({3});
    const auto live = [&](Category category) { return allocator(device).report().of(category); };
    const int64_t packed = live(Category::packed), workspace = live(Category::workspace);
    const auto result = codec.pack(x, {});
    const int64_t rounded = (codec.packed_bytes(x.shape()) + 63) / 64 * 64;
    CHECK(live(Category::packed) - packed == rounded);
    CHECK(live(Category::workspace) == workspace);
    const Tensor y = result->unpack();
    CHECK(y.device() == device);
    CHECK(y.shape() == x.shape());
    CHECK(y.storage()->category() == Category::workspace);
    CHECK(live(Category::packed) - packed == rounded);
  }
}

TEST_CASE("the stream depends on seed, step and entry") {
  const std::vector<float> x = normals(64 * 64, 1);
  const auto bytes = [&](uint64_t seed, uint64_t seq, uint64_t step) {
    QuantizeOptions options;
    options.seed = seed;
    return pack(Quantizer(options), x, {64, 64}, entry(seq, step)).bytes();
  };
  const auto base = bytes(1, 2, 3);
  CHECK(base == bytes(1, 2, 3));
  CHECK(base != bytes(2, 2, 3));
  CHECK(base != bytes(1, 3, 3));
  CHECK(base != bytes(1, 2, 4));
}

TEST_CASE("unpack_into writes where it is told and checks what it is given") {
  const std::vector<float> x = normals(100 * 7, 2);
  const PackedCase result = pack(Quantizer({5}), x, {100, 7});
  Tensor out = Tensor::full({100, 7}, 9);
  result.quantized().unpack_into(out);
  CHECK(out.to_vector() == result.values());
  CHECK_THROWS_WITH_AS(result.quantized().unpack_into(Tensor::empty({7, 100})),
                       "[quantize] expected a contiguous [100, 7] f32 on cpu to unpack into, got "
                       "[7, 100] f32 on cpu",
                       Error);
  CHECK_THROWS_AS(result.quantized().unpack_into(Tensor::empty({100, 7}, DType::f64)), Error);
  CHECK_THROWS_AS(result.quantized().unpack_into(Tensor::empty({7, 100}).transpose(0, 1)), Error);
  CHECK_THROWS_AS(result.quantized().unpack_into(Tensor()), Error);
}

TEST_CASE("wrong options and tensors are named") {
  CHECK_THROWS_WITH_AS(Quantizer({0}), "[quantize] expected 1 to 16 bits, got 0", Error);
  CHECK_THROWS_AS(Quantizer({17}), Error);
  for (int64_t group : {0, 4, 12, 65544})
    CHECK_THROWS_WITH_AS(
        Quantizer({4, group}),
        doctest::Contains("expected a group size that is a multiple of 8 in 8..65536"), Error);
  CHECK_THROWS_WITH_AS(Quantizer().pack(Tensor::zeros({64, 2}, DType::i32), {}),
                       "[quantize] expected a contiguous floating tensor, got [64, 2] i32 on cpu",
                       Error);
  CHECK_THROWS_AS(Quantizer().pack(Tensor::zeros({64, 2}).transpose(0, 1), {}), Error);
  CHECK_THROWS_AS(Quantizer().pack(Tensor(), {}), Error);
}
