#include "ops/dense/bitmask.h"

#include <doctest/doctest.h>

#include "tests/ops/samples.h"

namespace frugal::ops {
namespace {

// The layout's definition, one bit at a time.
bool bit(const Tensor& mask, const Shape& shape, int64_t i) {
  const int64_t n = shape.numel(), c = shape.back();
  const int64_t cols = (n / c) % 8 == 0 ? c : (n + 7) / 8;
  return (mask.data<uint8_t>()[i / cols / 8 * cols + i % cols] >> (i / cols % 8) & 1) != 0;
}

const std::vector<Shape> kShapes = {
    {1},      {7},      {8},       {9},     {3, 5},   {8, 1}, {8, 3},      {8, 17},    {16, 16},
    {24, 37}, {40, 64}, {2, 4, 3}, {13, 8}, {100, 9}, {1000}, {8, 2, 100}, {64, 1000}, {333, 111}};

}  // namespace

TEST_CASE("bitmask: every element has a bit and the bytes are ceil(n / 8)") {
  for (const Shape& shape : kShapes) {
    CAPTURE(shape.str());
    const BitmaskLayout layout = bitmask_layout(shape);
    CHECK(layout.bytes() == (shape.numel() + 7) / 8);
    CHECK(empty_bitmask(shape, kCpu).numel() == layout.bytes());
    CHECK(layout.by_rows == (shape.numel() / shape.back() % 8 == 0));
  }
  CHECK(bitmask_layout({0, 4}).bytes() == 0);
  CHECK(bitmask_layout({}).bytes() == 1);
  CHECK(empty_bitmask({16, 3}, kMeta).device() == kMeta);
}

TEST_CASE("bitmask: rectify, clamp and select agree with their definitions") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const Shape& shape : kShapes) {
      CAPTURE(shape.str());
      const Tensor x = normals(shape, 1, dtype), dy = normals(shape, 2, dtype);
      for (const double slope : {0.0, 0.25}) {
        const Rectified out = rectify(x, slope, true);
        CHECK(same_bits(out.y, rectify(x, slope, false).y));
        CHECK_FALSE(rectify(x, slope, false).mask.defined());
        const Tensor dx = select_by_mask(dy, out.mask, slope);
        CHECK(same_bits(select_by_mask(x, out.mask, slope), out.y));
        bool good = true;
        for (int64_t i = 0; i < x.numel(); ++i) {
          const double v = x.item(i), g = dy.item(i);
          good = good && bit(out.mask, shape, i) == (v > 0);
          good = good && out.y.item(i) == (v > 0 ? v : slope * v);
          good = good && dx.item(i) == (v > 0 ? g : slope * g);
        }
        CHECK(good);
      }
      const Rectified out = clamp(x, -0.5, 0.75, true);
      CHECK(same_bits(out.y, clamp(x, -0.5, 0.75, false).y));
      bool good = true;
      for (int64_t i = 0; i < x.numel(); ++i) {
        const double v = x.item(i);
        good = good && bit(out.mask, shape, i) == (v >= -0.5 && v <= 0.75);
        good = good && out.y.item(i) == std::clamp(v, -0.5, 0.75);
      }
      CHECK(good);
    }
}

TEST_CASE("bitmask: written over their input, and for a part of a tensor, the bits are the same") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
    for (const Shape& shape : kShapes) {
      CAPTURE(shape.str());
      const Tensor x = normals(shape, 1, dtype);
      const Rectified apart = rectify(x, 0, true);
      const Tensor over = clone(x), selected = clone(x);
      const uint64_t version = over.storage()->version();
      CHECK(same_bits(rectify_over(over, 0), apart.mask));
      CHECK(same_bits(over, apart.y));
      CHECK(over.storage()->version() > version);
      select_by_mask_over(selected, apart.mask, 0.25);
      CHECK(same_bits(selected, select_by_mask(x, apart.mask, 0.25)));
      const int64_t rows = x.size(0), each = x.numel() / rows;
      if (bitmask_layout(shape).by_rows) continue;
      for (const int64_t begin : {int64_t{0}, rows / 3, rows / 2}) {
        const Tensor part = clone(x.slice(0, begin, rows));
        select_part_by_mask(part, apart.mask, begin * each);
        CHECK(same_bits(part, clone(apart.y.slice(0, begin, rows))));
      }
    }
}

TEST_CASE("bitmask: NaN stays visible, infinities do not become NaN, zero is not kept") {
  const std::vector<double> values = {kNan, -kNan, kInf, -kInf, 0.0, -0.0, 1.0, -1.0};
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t rows : {2, 8}) {  // both layouts
      std::vector<double> all;
      for (int64_t row = 0; row < rows; ++row) all.insert(all.end(), values.begin(), values.end());
      const Tensor x = cast(Tensor::from(all, {rows, 8}), dtype);
      const Rectified relu = rectify(x, 0, true);
      const Rectified leaky = rectify(x, 0.5, true);
      const Rectified clamped = clamp(x, -0.5, 0.5, true);
      std::vector<double> y, leaked, bounded;
      for (int64_t row = 0; row < rows; ++row) {
        for (const double v : {kNan, kNan, kInf, 0.0, 0.0, 0.0, 1.0, 0.0}) y.push_back(v);
        for (const double v : {kNan, kNan, kInf, -kInf, 0.0, 0.0, 1.0, -0.5}) leaked.push_back(v);
        for (const double v : {kNan, kNan, 0.5, -0.5, 0.0, 0.0, 0.5, -0.5}) bounded.push_back(v);
      }
      CHECK(error(relu.y, y) == 0);
      CHECK(error(leaky.y, leaked) == 0);
      CHECK(error(clamped.y, bounded) == 0);
      CHECK(error(select_by_mask(x, relu.mask, 0), y) == 0);
      CHECK(bit(relu.mask, x.shape(), 0));
      CHECK_FALSE(bit(relu.mask, x.shape(), 4));
      // A gradient that is infinite where the sign is off is 0, not NaN.
      const Tensor dy = Tensor::full({rows, 8}, kInf, dtype);
      CHECK(select_by_mask(dy, relu.mask, 0).item(3) == 0);
    }
}

TEST_CASE("bitmask: the same bits for every thread count, gaps or not, and when streamed") {
  for (const Shape& shape : {Shape{4096, 33}, Shape{4097, 33}, Shape{8, 200000}}) {
    const Tensor x = normals(shape, 3);
    std::vector<Rectified> outs;
    for (const int threads : {1, 2, 3}) {
      const ThreadsScope scope(threads);
      outs.push_back(rectify(x, 0.1, true));
      CHECK(same_bits(outs.front().y, outs.back().y));
      CHECK(same_bits(outs.front().mask, outs.back().mask));
    }
    const Rectified gaps = rectify(with_gaps(x), 0.1, true);
    CHECK(same_bits(gaps.y, outs.front().y));
    CHECK(same_bits(gaps.mask, outs.front().mask));
  }
  // 32 MiB are written past the caches.
  const Tensor x = Tensor::full({1 << 19, 16}, -2);
  const Rectified out = rectify(x, 0.5, true);
  const float* y = out.y.data<float>();
  CHECK(std::all_of(y, y + out.y.numel(), [](float v) { return v == -1; }));
  const uint8_t* bytes = out.mask.data<uint8_t>();
  CHECK(std::all_of(bytes, bytes + out.mask.numel(), [](uint8_t v) { return v == 0; }));
}

TEST_CASE("bitmask: empty, scalar and meta tensors") {
  const Rectified empty = rectify(Tensor::empty({0, 3}), 0, true);
  CHECK(empty.y.numel() == 0);
  CHECK(empty.mask.numel() == 0);
  CHECK(select_by_mask(Tensor::empty({0, 3}), empty.mask, 0).numel() == 0);
  const Rectified scalar = rectify(Tensor::full({}, -3), 0, true);
  CHECK(scalar.y.item() == 0);
  CHECK(scalar.mask.numel() == 1);
  const Rectified meta = rectify(Tensor::empty({16, 3}, DType::f32, kMeta), 0, true);
  CHECK(meta.y.device() == kMeta);
  CHECK(meta.mask.shape() == Shape{2, 3});
}

TEST_CASE("bitmask: errors name the op") {
  CHECK_THROWS_WITH_AS(rectify(Tensor::empty({2}, DType::f16), 0, true),
                       doctest::Contains("[relu] expected x of dtype f32, f64 or bf16"), Error);
  CHECK_THROWS_WITH_AS(rectify({}, 0, true), doctest::Contains("[relu] expected x"), Error);
  CHECK_THROWS_WITH_AS(clamp(Tensor::empty({2}), 1, 0, false),
                       doctest::Contains("[clamp] expected bounds in order, got 1 and 0"), Error);
  CHECK_THROWS_WITH_AS(clamp(Tensor::empty({2}), kNan, 0, false),
                       doctest::Contains("[clamp] expected bounds in order"), Error);
  CHECK_THROWS_WITH_AS(clamp(Tensor::empty({2}, DType::i64), 0, 1, false),
                       doctest::Contains("[clamp] expected x of dtype f32, f64 or bf16"), Error);
  CHECK_THROWS_WITH_AS(
      select_by_mask(Tensor::empty({16, 3}), empty_bitmask({16, 4}, kCpu), 0),
      doctest::Contains("[select_by_mask] expected the mask of shape [2, 3], got [2, 4] u8"),
      Error);
  CHECK_THROWS_WITH_AS(
      select_by_mask(Tensor::empty({16, 3}), Tensor::empty({2, 3}), 0),
      doctest::Contains("[select_by_mask] expected the mask of dtype u8 on cpu, got [2, 3] f32"),
      Error);
}

}  // namespace frugal::ops
