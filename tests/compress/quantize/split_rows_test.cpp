// Unpacking a range of the leading axis, of both formats.
#include <doctest/doctest.h>

#include <cstring>

#include "core/parallel.h"
#include "ops/dense/copy.h"
#include "tests/compress/quantize/affine_rows.h"
#include "tests/compress/quantize/split_samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

// Rows [begin, end) of the leading axis.
void check_rows(const Quantized& quantized, const Shape& shape, int64_t begin, int64_t end) {
  CAPTURE(begin);
  CAPTURE(end);
  const Tensor whole = quantized.unpack(), part = quantized.unpack_rows(begin, end);
  Shape narrowed = shape;
  narrowed[0] = end - begin;
  REQUIRE(part.shape() == narrowed);
  REQUIRE(part.dtype() == whole.dtype());
  REQUIRE(part.storage()->category() == Category::workspace);
  const int64_t row = whole.nbytes() / shape[0];
  if (part.nbytes() > 0)
    REQUIRE(std::memcmp(part.raw(), static_cast<const char*>(whole.raw()) + begin * row,
                        static_cast<size_t>(part.nbytes())) == 0);
}

void check_affine_rows(const SplitCase& result, const Shape& shape, int64_t begin, int64_t end) {
  CAPTURE(begin);
  CAPTURE(end);
  const int64_t cols = shape.back(), row = shape.numel() / shape[0];
  std::vector<float> map(static_cast<size_t>(3 * cols));
  for (size_t i = 0; i < map.size(); ++i) map[i] = 0.25f * static_cast<float>(i % 9) - 1;
  const Tensor x = result.quantized().unpack_rows(begin, end);
  const Tensor y = affine_rows(result.quantized(), begin, end, Tensor::from(map, {3, cols}));
  REQUIRE(y.shape() == x.shape());
  REQUIRE(y.storage()->category() == Category::workspace);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float* a = map.data() + i % cols;
    const double z = (double{x.data<float>()[i]} - a[0]) * a[cols] + a[2 * cols];
    const double expected = bit_at(result.mask, shape, begin * row + i) ? z : 0;
    REQUIRE(y.data<float>()[i] == doctest::Approx(expected).epsilon(1e-5));
  }
}

void check_sign_rows(const SplitCase& result, const Shape& shape, int64_t begin, int64_t end) {
  CAPTURE(begin);
  CAPTURE(end);
  Shape narrowed = shape;
  narrowed[0] = end - begin;
  const int64_t row = shape.numel() / shape[0];
  const Tensor expected = mask_of(narrowed, [&](size_t i) {
    return bit_at(result.mask, shape, begin * row + static_cast<int64_t>(i));
  });
  REQUIRE(same_bytes(result.quantized().unpack_sign_rows(begin, end), expected));
}

// Ranges at all positions within blocks, groups and the ends.
std::vector<std::pair<int64_t, int64_t>> ranges(int64_t n) {
  std::vector<std::pair<int64_t, int64_t>> list = {{0, n}, {0, 0}, {n, n}, {0, 1}, {n - 1, n}};
  for (int64_t begin : {n / 7, n / 3, n / 2, n / 2 + 1, n - 3})
    for (int64_t length : {int64_t{1}, int64_t{2}, n / 5, n / 2})
      if (begin >= 0 && begin + length <= n) list.push_back({begin, begin + length});
  return list;
}

}  // namespace

TEST_CASE("a range of rows is that part of the whole, bit for bit") {
  const std::vector<Shape> shapes = {{520, 18},     {301, 5},      {64, 1},  {12, 7, 7, 20},
                                     {9, 8, 8, 16}, {40, 3, 4, 3}, {5, 100}, {700},
                                     {33, 17},      {1, 64, 4},    {80, 130}};
  for (const Shape& shape : shapes)
    for (int bits : {1, 3, 4, 8, 11})
      for (int64_t group : {32, 256}) {
        CAPTURE(shape.str());
        CAPTURE(bits);
        CAPTURE(group);
        const std::vector<float> x = normals(shape.numel(), 2);
        const Rounding rounding = bits % 4 == 0 ? Rounding::dithered : Rounding::stochastic;
        const Quantizer codec({bits, group, GroupAxis::column, rounding});
        const PackedCase plain = pack(codec, x, shape);
        const SplitCase split = split_pack(codec, x, shape, mask_of(x, shape, Bits::sign), 0);
        for (const auto& [begin, end] : ranges(shape[0])) {
          check_rows(plain.quantized(), shape, begin, end);
          if (!split.quantized().carries_sign()) continue;
          if (bits % 4 != 1) check_affine_rows(split, shape, begin, end);
          check_rows(split.quantized(), shape, begin, end);
          check_sign_rows(split, shape, begin, end);
        }
      }
}

TEST_CASE("every range of a few rows, and other dtypes") {
  const Shape shape{24, 3, 5};
  const std::vector<float> floats = normals(shape.numel(), 3);
  const Tensor x = Tensor::from(floats, shape), mask = mask_of(floats, shape, Bits::random);
  const Quantizer codec({4, 16, GroupAxis::column, Rounding::dithered});
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    CAPTURE(dtype);
    const SplitCase split = split_pack(codec, ops::cast(x, dtype), mask, 0.1);
    REQUIRE(split.quantized().carries_sign());
    const PackedCase plain{codec.pack(ops::cast(x, dtype), {})};
    for (int64_t begin = 0; begin <= 24; ++begin)
      for (int64_t end = begin; end <= 24; ++end) {
        check_rows(split.quantized(), shape, begin, end);
        check_rows(plain.quantized(), shape, begin, end);
        if (dtype == DType::f32) check_sign_rows(split, shape, begin, end);
      }
  }
}

TEST_CASE("large ranges stream past the caches and give the same bits") {
  const Shape shape{33, 64, 64, 64};
  const Tensor x = Tensor::empty(shape), mask = ops::empty_bitmask(shape, kCpu);
  for (int64_t i = 0; i < x.numel(); ++i) x.mut<float>()[i] = static_cast<float>(i * 7919 % 1021);
  for (int64_t i = 0; i < mask.numel(); ++i)
    mask.mut<uint8_t>()[i] = static_cast<uint8_t>(i * 7919 % 251);
  const SplitCase split =
      split_pack(Quantizer({2, 256, GroupAxis::column, Rounding::dithered}), x, mask, 0);
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{1, 33}, {7, 9}})
    check_rows(split.quantized(), shape, begin, end);
  CHECK(same_bytes(split.quantized().unpack_sign(), mask));
}

TEST_CASE("a range does not take memory for more than its rows") {
  const Shape shape{64, 8, 8, 32};
  const std::vector<float> x = normals(shape.numel(), 5);
  const SplitCase split = split_pack(Quantizer({4}), x, shape, mask_of(x, shape, Bits::sign), 0);
  const auto live = [] { return allocator(kCpu).report().of(Category::workspace); };
  const int64_t before = live();
  const Tensor part = split.quantized().unpack_rows(8, 16);
  CHECK(live() - before == part.nbytes());
}

TEST_CASE("rows do not depend on the number of threads") {
  const int before = num_threads();
  const Shape shape{96, 51, 40};
  const std::vector<float> x = normals(shape.numel(), 11);
  const SplitCase split = split_pack(Quantizer({3, 256, GroupAxis::column, Rounding::dithered}), x,
                                     shape, mask_of(x, shape, Bits::sign), 0);
  REQUIRE(split.quantized().carries_sign());
  set_num_threads(1);
  const Tensor y = split.quantized().unpack_rows(3, 90);
  const Tensor bits = split.quantized().unpack_sign_rows(3, 90);
  for (int threads : {2, 5}) {
    set_num_threads(threads);
    CHECK(same_bytes(split.quantized().unpack_rows(3, 90), y));
    CHECK(same_bytes(split.quantized().unpack_sign_rows(3, 90), bits));
  }
  set_num_threads(before);
}

TEST_CASE("ranges outside the leading axis are named") {
  const std::vector<float> x = normals(64 * 4, 5);
  const SplitCase split =
      split_pack(Quantizer({4}), x, {64, 4}, mask_of(x, {64, 4}, Bits::sign), 0);
  const Quantized& q = split.quantized();
  CHECK_THROWS_WITH_AS(
      q.unpack_rows(3, 65),
      "[quantize] expected a range within the leading axis of [64, 4], got 3 to 65", Error);
  CHECK_THROWS_AS(q.unpack_rows(-1, 5), Error);
  CHECK_THROWS_AS(q.unpack_rows(5, 4), Error);
  CHECK_THROWS_AS(q.unpack_sign_rows(3, 65), Error);
  CHECK_THROWS_AS(pack(Quantizer(), {1.0f}, {}).quantized().unpack_rows(0, 0), Error);
  CHECK(pack(Quantizer(), {}, {0, 4}).quantized().unpack_rows(0, 0).shape() == Shape{0, 4});
}
