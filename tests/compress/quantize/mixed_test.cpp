// Tensors whose samples are packed at different widths.
#include "compress/quantize/mixed.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "core/parallel.h"
#include "ops/dense/bitmask.h"
#include "tests/compress/quantize/split_samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

std::vector<int> cycle(int64_t n, const std::vector<int>& widths) {
  std::vector<int> all(static_cast<size_t>(n));
  for (size_t i = 0; i < all.size(); ++i) all[i] = widths[i * i % widths.size()];
  return all;
}

// Samples of growing spread.
Tensor samples(const Shape& shape, uint64_t seed = 1) {
  std::vector<float> x = normals(shape.numel(), seed);
  const int64_t stride = shape.numel() / shape[0];
  for (size_t i = 0; i < x.size(); ++i)
    x[i] *= 1 + static_cast<float>(static_cast<int64_t>(i) / stride % 7);
  return Tensor::from(x, shape);
}

const std::vector<Shape> kShapes = {{9, 16, 16, 6}, {12, 8, 8, 16}, {20, 7, 7, 5}, {70, 33},
                                    {6, 4, 4, 40},  {1500, 12},     {13, 50, 3},   {40}};

}  // namespace

TEST_CASE("every sample lies within the steps of its own width") {
  for (const Shape& shape : kShapes) {
    CAPTURE(shape);
    const Tensor x = samples(shape);
    const MixedQuantizer codec;
    const Samples parts = samples_of(shape, false);
    CHECK(parts.end(parts.count - 1) == shape.numel());
    const std::vector<int> widths = cycle(parts.count, {8, 2, 12, 5});
    const auto packed = codec.pack(x, entry(3), widths);
    const Tensor back = packed->unpack();
    REQUIRE(back.shape() == shape);
    CHECK(back.storage()->category() == Category::workspace);
    for (int64_t n = 0; n < parts.count; ++n) {
      // No group spans more than all values do.
      const double step = 64.0 / ((1 << widths[static_cast<size_t>(n)]) - 1);
      double worst = 0;
      for (int64_t i = parts.begin(n); i < parts.end(n); ++i)
        worst = std::max(worst, std::abs(back.item(i) - x.item(i)));
      CHECK(worst <= step * 1.02);
      CHECK(worst > 0);
    }
  }
}

TEST_CASE("samples of one width are the plain quantizer's") {
  const Shape shape{12, 8, 8, 16};
  MixedOptions options;
  options.seed = 5;
  const MixedQuantizer codec(options);
  QuantizeOptions plain;
  plain.bits = 3;
  plain.seed = 5;
  const Tensor x = samples(shape);
  const auto packed = codec.pack(x, entry(1), std::vector<int>(12, 3));
  CHECK(same_bytes(packed->unpack(), Quantizer(plain).pack(x, entry(1))->unpack()));
  CHECK(codec.packed_bytes(shape, std::vector<int>(12, 3)) == Quantizer(plain).packed_bytes(shape));
}

TEST_CASE("rows of a mixed tensor are that part of the whole") {
  for (const Shape& shape : kShapes) {
    CAPTURE(shape);
    MixedOptions options;
    options.rounding = shape.dim() == 4 ? Rounding::dithered : Rounding::stochastic;
    const MixedQuantizer codec(options);
    const auto packed =
        codec.pack(samples(shape), entry(2), cycle(samples_of(shape, false).count, {1, 3, 2}));
    const Tensor whole = packed->unpack();
    const int64_t n = shape[0];
    for (const auto& rows : std::vector<std::pair<int64_t, int64_t>>{
             {0, n}, {0, 0}, {0, 1}, {n - 1, n}, {n / 3, n / 2 + 1}, {1, n}, {n / 2, n - 1}}) {
      const int64_t begin = rows.first, end = rows.second;
      CAPTURE(begin);
      CAPTURE(end);
      const Tensor part = packed->unpack_rows(begin, end);
      REQUIRE(part.shape()[0] == end - begin);
      CHECK(part.to_vector() == whole.slice(0, begin, end).to_vector());
    }
  }
}

TEST_CASE("bytes do not depend on the number of threads, values on the step") {
  const Shape shape{40, 8, 8, 64};
  const Tensor x = samples(shape);
  const MixedQuantizer codec;
  const std::vector<int> widths = cycle(40, {1, 2, 4, 2});
  const int threads = num_threads();
  set_num_threads(1);
  const Tensor one = codec.pack(x, entry(2), widths)->unpack();
  set_num_threads(4);
  const Tensor four = codec.pack(x, entry(2), widths)->unpack();
  set_num_threads(threads);
  CHECK(same_bytes(one, four));
  CHECK(!same_bytes(one, codec.pack(x, entry(2, 1), widths)->unpack()));
}

TEST_CASE("a mixed tensor is unbiased, with the variance of each sample's width") {
  const Shape shape{8, 16, 16, 4};
  const Tensor x = Tensor::from(normals(shape.numel(), 3), shape);
  const std::vector<int> widths{1, 2, 3, 2, 1, 3, 4, 2};
  const MixedQuantizer codec;
  const int draws = 400;
  std::vector<double> sum(static_cast<size_t>(x.numel())), squares(widths.size());
  const Samples parts = samples_of(shape, false);
  for (int draw = 0; draw < draws; ++draw) {
    const Tensor y = codec.pack(x, entry(0, static_cast<uint64_t>(draw)), widths)->unpack();
    for (size_t n = 0; n < widths.size(); ++n)
      for (int64_t i = parts.begin(static_cast<int64_t>(n)); i < parts.end(static_cast<int64_t>(n));
           ++i) {
        const double error = y.item(i) - x.item(i);
        sum[static_cast<size_t>(i)] += error;
        squares[n] += error * error;
      }
  }
  double mean_squares = 0, variance = 0;
  for (const double s : sum) mean_squares += s * s / draws;
  for (const double s : squares) variance += s;
  CHECK(draws * mean_squares / variance == doctest::Approx(1).epsilon(0.08));
  // A bit less divides the variance by (2^b - 1)^2, the ranges of normals being much alike.
  CHECK(squares[0] / squares[1] == doctest::Approx(9).epsilon(0.5));
  CHECK(squares[1] / squares[2] == doctest::Approx(49.0 / 9).epsilon(0.5));
}

TEST_CASE("dithered rounding of a mixed tensor is unbiased with half the variance") {
  const Shape shape{8, 16, 16, 4};
  const Tensor x = Tensor::from(normals(shape.numel(), 3), shape);
  const std::vector<int> widths{2, 3, 2, 4, 3, 2, 3, 4};
  const int draws = 200;
  double variance[2] = {}, bias = 0;
  for (const Rounding rounding : {Rounding::stochastic, Rounding::dithered}) {
    MixedOptions options;
    options.rounding = rounding;
    const MixedQuantizer codec(options);
    std::vector<double> sum(static_cast<size_t>(x.numel()));
    double& squares = variance[rounding == Rounding::dithered];
    for (int draw = 0; draw < draws; ++draw) {
      const Tensor y = codec.pack(x, entry(0, static_cast<uint64_t>(draw)), widths)->unpack();
      for (int64_t i = 0; i < x.numel(); ++i) {
        const double error = y.item(i) - x.item(i);
        sum[static_cast<size_t>(i)] += error, squares += error * error;
      }
    }
    bias = 0;
    for (const double s : sum) bias += s * s / draws;
  }
  CHECK(draws * bias / variance[1] == doctest::Approx(1).epsilon(0.08));
  CHECK(variance[1] / variance[0] == doctest::Approx(0.5).epsilon(0.1));
}

TEST_CASE("signs of a mixed tensor are exact") {
  for (const Shape& shape : {Shape{9, 16, 16, 6}, Shape{12, 8, 8, 16}, Shape{16, 7, 7, 5},
                             Shape{40, 4, 4, 8}, Shape{20, 3, 8, 9}}) {
    CAPTURE(shape);
    const Tensor x = samples(shape), mask = mask_of(shape, [&](size_t i) { return i % 3 == 1; });
    const Sign sign{mask, 0};
    SaveInfo info = entry(4);
    info.sign = &sign;
    const MixedQuantizer codec;
    const Samples parts = samples_of(shape, true);
    const auto packed = codec.pack(x, info, cycle(parts.count, {6, 8, 7}));
    REQUIRE(codec.can_carry_sign(shape));
    REQUIRE(packed->carries_sign());
    CHECK(same_bytes(packed->unpack_sign(), mask));
    const int64_t each = parts.each;
    if (const Tensor part = packed->unpack_sign_rows(each, 2 * each); part.defined()) {
      Shape narrowed = shape;
      narrowed[0] = each;
      const Tensor expected = mask_of(
          narrowed, [&](size_t i) { return (static_cast<int64_t>(i) + parts.begin(1)) % 3 == 1; });
      CHECK(same_bytes(part, expected));
    }
    double error = 0, power = 0;
    const Tensor back = packed->unpack();
    for (int64_t i = 0; i < x.numel(); ++i) {
      error += std::pow(back.item(i) - x.item(i), 2);
      power += std::pow(x.item(i), 2);
    }
    CHECK(error < power / 10);
    CHECK(error > 0);
    CHECK(!codec.pack(x, info, cycle(parts.count, {1, 4}))->carries_sign());
  }
}

TEST_CASE("a mixed tensor is one payload of the bytes foretold, and can be moved") {
  const Shape shape{32, 16, 16, 16};
  const MixedQuantizer codec;
  std::vector<int> widths(32, 1);
  std::fill_n(widths.begin(), 8, 2);  // 1.25 on average
  const int64_t packed_before = allocator(kCpu).report().of(Category::packed);
  const Tensor x = samples(shape);
  auto packed = codec.pack(x, entry(0), widths);
  const int64_t bytes = allocator(kCpu).report().of(Category::packed) - packed_before;
  const int64_t foretold = codec.packed_bytes(shape, widths);
  CHECK(bytes >= foretold);
  CHECK(bytes < foretold + 64);
  const double ideal = static_cast<double>(x.numel()) * (1.25 + 0.125) / 8;
  CHECK(static_cast<double>(foretold) == doctest::Approx(ideal).epsilon(0.002));
  const Tensor before = packed->unpack();
  auto* movable = dynamic_cast<Movable*>(packed.get());
  REQUIRE(movable != nullptr);
  Tensor payload = movable->take_payload();
  CHECK(payload.numel() == foretold);
  movable->put_payload(std::move(payload));
  CHECK(same_bytes(packed->unpack(), before));
}

TEST_CASE("other dtypes and values that are not finite") {
  const Shape shape{6, 8, 8, 8};
  Tensor x = samples(shape);
  x.mut<float>()[5] = NAN;
  const MixedQuantizer codec;
  const std::vector<int> widths{8, 4, 8, 4, 8, 4};
  const auto packed = codec.pack(x, entry(0), widths);
  CHECK(codec.nonfinite_groups() > 0);
  CHECK(std::isnan(packed->unpack().item(5)));
  std::vector<double> wide(static_cast<size_t>(x.numel()));
  for (size_t i = 0; i < wide.size(); ++i) wide[i] = std::sin(static_cast<double>(i));
  const Tensor y = codec.pack(Tensor::from(wide, shape), entry(0), widths)->unpack();
  CHECK(y.dtype() == DType::f64);
  CHECK(y.item(7) == doctest::Approx(wide[7]).epsilon(0.05));
  // On meta there are bytes and nothing else.
  const Tensor planned =
      codec.pack(Tensor::empty(shape, DType::f32, kMeta), entry(0), widths)->unpack();
  CHECK(planned.device() == kMeta);
}

TEST_CASE("errors of mixed widths") {
  const MixedQuantizer codec;
  const Tensor x = samples({6, 16, 64});
  CHECK_THROWS_WITH_AS(codec.pack(x, entry(0), std::vector<int>{2, 3}),
                       "[mixed] expected the widths of 6 samples of [6, 16, 64], got 2", Error);
  CHECK_THROWS_WITH_AS(codec.pack(x, entry(0), std::vector<int>{2, 3, 0, 2, 2, 2}),
                       "[mixed] expected 1 to 16 bits for sample 2, got 0", Error);
  CHECK_THROWS_WITH_AS(codec.pack(x.transpose(0, 1), entry(0), std::vector<int>{2, 3, 1, 2, 2, 2}),
                       doctest::Contains("[mixed] expected a contiguous floating tensor, got"),
                       Error);
  const Sign none{{}, 0};
  SaveInfo info = entry(0);
  info.sign = &none;
  CHECK_THROWS_WITH_AS(codec.pack(samples({4, 64, 2}), info, std::vector<int>{2, 3, 2, 4}),
                       doctest::Contains("[mixed] expected a contiguous mask of 64 u8"), Error);
  const Sign endless{mask_of({4, 64, 2}, [](size_t) { return true; }), INFINITY};
  info.sign = &endless;
  CHECK_THROWS_WITH_AS(codec.pack(samples({4, 64, 2}), info, std::vector<int>{2, 3, 2, 4}),
                       doctest::Contains("[mixed] expected a finite slope"), Error);
  const auto packed = codec.pack(x, entry(0), std::vector<int>{2, 3, 2, 3, 2, 4});
  CHECK_THROWS_WITH_AS(
      packed->unpack_rows(2, 7),
      "[mixed] expected a range within the leading axis of [6, 16, 64], got 2 to 7", Error);
  MixedOptions odd;
  odd.group = 12;
  CHECK_THROWS_AS(MixedQuantizer{odd}, Error);
}
