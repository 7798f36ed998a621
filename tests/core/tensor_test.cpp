#include "core/tensor.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

using namespace frugal;

TEST_CASE("a tensor is a view of shared storage") {
  const Tensor x = Tensor::from<float>({0, 1, 2, 3, 4, 5}, {2, 3});
  CHECK(x.is_contiguous());
  CHECK(x.nbytes() == 24);
  const Tensor t = x.transpose(0, 1);
  CHECK(t.shape() == Shape{3, 2});
  CHECK(!t.is_contiguous());
  CHECK(t.storage()->id() == x.storage()->id());
  CHECK(t.to_vector() == std::vector<double>{0, 3, 1, 4, 2, 5});
  CHECK(x.slice(1, 1, 3).to_vector() == std::vector<double>{1, 2, 4, 5});
  CHECK(x.select(0, 1).to_vector() == std::vector<double>{3, 4, 5});
  CHECK(x.select(-1, 0).to_vector() == std::vector<double>{0, 3});
  CHECK(x.view({3, -1}).shape() == Shape{3, 2});
  x.mut<float>()[0] = 7;
  CHECK(t.item(0) == 7);
}

TEST_CASE("ids are never reused and versions count writes") {
  const uint64_t first = Tensor::empty({4}).storage()->id();
  const Tensor again = Tensor::empty({4});
  CHECK(again.storage()->id() != first);
  const uint64_t version = again.storage()->version();
  again.bump_version();
  CHECK(again.storage()->version() == version + 1);
}

TEST_CASE("mistakes with shapes and axes are named") {
  const Tensor x = Tensor::zeros({2, 3});
  CHECK_THROWS_WITH_AS(x.view({4, 2}), doctest::Contains("[view] expected a shape of 6 elements"),
                       Error);
  CHECK_THROWS_WITH_AS(x.transpose(0, 1).view({6}), doctest::Contains("contiguous"), Error);
  CHECK(Tensor::zeros({0, 3}).view({-1, 3}).shape() == Shape{0, 3});
  CHECK_THROWS_WITH_AS(Tensor::zeros({0, 3}).view({0, -1}),
                       doctest::Contains("[view] expected extents that determine the one of -1"),
                       Error);
  CHECK_THROWS_WITH_AS(Tensor::zeros({1}).view({-1, -1}),
                       doctest::Contains("at most one of -1, got [-1, -1]"), Error);
  CHECK_THROWS_WITH_AS(x.view({-2, -3}), doctest::Contains("at least 0"), Error);
  CHECK_THROWS_WITH_AS(x.slice(1, 2, 4), doctest::Contains("0 <= begin <= end <= 3"), Error);
  CHECK_THROWS_WITH_AS(x.size(2), doctest::Contains("axis in [-2, 2)"), Error);
  CHECK_THROWS_WITH_AS(x.permute({0, 0}), doctest::Contains("each axis once"), Error);
  CHECK_THROWS_AS(x.item(6), Error);
  CHECK_THROWS_AS(x.data<double>(), InternalError);
  CHECK_THROWS_WITH_AS(Tensor::from<float>({1, 2}, {3}), doctest::Contains("expected 3 values"),
                       Error);
  CHECK_THROWS_WITH_AS(Tensor::empty({-1}), doctest::Contains("at least 0"), Error);
  CHECK_THROWS_WITH_AS(broadcast_shape("add", {2, 3}, {2, 2}),
                       doctest::Contains("[add] expected shapes that broadcast"), Error);
  CHECK(broadcast_shape("add", {4, 1, 3}, {2, 1}) == Shape{4, 2, 3});
}

TEST_CASE("every dtype fills and reads back") {
  for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32,
                      DType::u8, DType::bool_}) {
    CAPTURE(name_of(dtype));
    CHECK(Tensor::full({3}, 1, dtype).to_vector() == std::vector<double>{1, 1, 1});
    CHECK(Tensor::zeros({2}, dtype).item(1) == 0);
    CHECK(Tensor::empty({3}, dtype).nbytes() == 3 * static_cast<int64_t>(size_of(dtype)));
  }
}

TEST_CASE("integers are filled with the nearest value that they have, and with 0 for NaN") {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = HUGE_VAL;
  const auto filled = [](double value, DType dtype) {
    return Tensor::full({1}, value, dtype).item();
  };
  struct Range {
    DType dtype;
    double least, most;
  };
  for (const Range& range : {Range{DType::u8, 0.0, 255.0},
                             {DType::i32, -0x1p31, 0x1p31 - 1},
                             {DType::i64, -0x1p63, 0x1p63}}) {  // f64 rounds 2^63 - 1 to 2^63
    const auto [dtype, least, most] = range;
    CAPTURE(name_of(range.dtype));
    CHECK(filled(1e300, dtype) == most);
    CHECK(filled(inf, dtype) == most);
    CHECK(filled(-1e300, dtype) == least);
    CHECK(filled(-inf, dtype) == least);
    CHECK(filled(nan, dtype) == 0);
    CHECK(filled(7.9, dtype) == 7);
  }
}

TEST_CASE("bf16 and f16 round to nearest even") {
  CHECK(BFloat16(1.0f + 0x1p-8f).bits == 0x3f80);      // half way: down to even
  CHECK(BFloat16(1.0f + 3 * 0x1p-8f).bits == 0x3f82);  // half way: up to even
  CHECK(std::isnan(static_cast<float>(BFloat16(std::numeric_limits<float>::quiet_NaN()))));
  CHECK(Float16(65504.0f).bits == 0x7bff);
  CHECK(Float16(65520.0f).bits == 0x7c00);  // rounds to infinity
  CHECK(Float16(0x1p-24f).bits == 1);
  CHECK(Float16(1.0f + 0x1p-11f).bits == 0x3c00);  // half way: down to even
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    Float16 half;
    half.bits = static_cast<uint16_t>(bits);
    const float value = static_cast<float>(half);
    if (!std::isnan(value)) REQUIRE(Float16(value).bits == bits);
  }
}

TEST_CASE("meta tensors have bytes and no memory") {
  const int64_t before = allocator(kMeta).report().live_total;
  const Tensor x = Tensor::zeros({1 << 20, 1 << 10}, DType::f32, kMeta);
  CHECK(x.raw() == nullptr);
  CHECK(allocator(kMeta).report().live_total - before == int64_t{4} << 30);
  CHECK(describe(x) == "[1048576, 1024] f32 on meta");
}

TEST_CASE("devices parse") {
  CHECK(Device::parse("cpu") == kCpu);
  CHECK(Device::parse("cuda:3") == Device{DeviceType::cuda, 3});
  CHECK(Device::parse("meta").str() == "meta");
  CHECK_THROWS_WITH_AS(Device::parse("gpu"), doctest::Contains("expected cpu, cuda"), Error);
  CHECK_THROWS_AS(Device::parse("cuda:x"), Error);
}

TEST_CASE("tensors are made from numbers in braces") {
  const Tensor x = Tensor::of({{1, 2, 3}, {4, 5, 6}});
  CHECK(x.shape() == Shape{2, 3});
  CHECK(x.dtype() == DType::f32);
  CHECK(x.to_vector() == std::vector<double>{1, 2, 3, 4, 5, 6});
  CHECK(Tensor::of(2.5).shape() == Shape{});
  CHECK(Tensor::of({2.5}).shape() == Shape{1});
  CHECK(Tensor::of({{1}}).shape() == Shape{1, 1});
  CHECK(Tensor::of({{{1, 2}}, {{3, 4}}}).shape() == Shape{2, 1, 2});
  CHECK(Tensor::of({0, 2, 1}, DType::i64).to_vector<int64_t>() == std::vector<int64_t>{0, 2, 1});
  CHECK(Tensor::of({1, 2}, DType::f32, kMeta).device() == kMeta);
  CHECK_THROWS_WITH_AS(Tensor::of({{1, 2}, {3}}),
                       doctest::Contains("lists of one shape, got [2] and [1]"), Error);
  CHECK_THROWS_WITH_AS(Tensor::of({1, 0.5}, DType::i64),
                       doctest::Contains("numbers that i64 holds, got 0.5"), Error);
  CHECK_THROWS_WITH_AS(Tensor::of({256}, DType::u8), doctest::Contains("u8"), Error);
  CHECK_THROWS_WITH_AS(Tensor::of({NAN}, DType::i32), doctest::Contains("i32"), Error);
  CHECK_THROWS_WITH_AS(Tensor::of({INT64_MAX}), doctest::Contains("up to 2^53"), Error);
}

TEST_CASE("factories: ones, arange, rand, randn") {
  CHECK(Tensor::ones({2}).to_vector() == std::vector<double>{1, 1});
  CHECK(Tensor::arange(0, 3).to_vector() == std::vector<double>{0, 1, 2});
  CHECK(Tensor::arange(3, 0, -2).to_vector() == std::vector<double>{3, 1});
  CHECK(Tensor::arange(0, 1, 0.25, DType::f64).to_vector() ==
        std::vector<double>{0, 0.25, 0.5, 0.75});
  CHECK(Tensor::arange(0, 0, 1, DType::u8).numel() == 0);
  CHECK(Tensor::arange(0, 256, 1, DType::u8).numel() == 256);
  CHECK_THROWS_WITH_AS(Tensor::arange(0, 1, 0), doctest::Contains("[arange]"), Error);
  CHECK_THROWS_WITH_AS(Tensor::arange(0, 1, -1), doctest::Contains("leads from 0 to 1"), Error);
  CHECK_THROWS_WITH_AS(Tensor::arange(0, 2, 0.5, DType::i64), doctest::Contains("i64 holds"),
                       Error);
  CHECK_THROWS_WITH_AS(Tensor::arange(0, 257, 1, DType::u8), doctest::Contains("u8 holds"), Error);

  const RngKey key{7, 1};
  const Tensor u = Tensor::rand({3000}, key), n = Tensor::randn({3000}, key);
  CHECK(u.item(5) == static_cast<double>(uniform(key, 5)));
  CHECK(n.item(2999) == static_cast<double>(normal(key, 2999)));
  CHECK(Tensor::rand({4}, key).to_vector() != Tensor::rand({4}, {8, 1}).to_vector());
  CHECK(Tensor::randn({4}, key, DType::f64).dtype() == DType::f64);
  CHECK_THROWS_WITH_AS(Tensor::rand({2}, key, DType::i64), doctest::Contains("floating"), Error);
}

// Normal numbers of 8 binary digits that are made of uniform ones of 8 digits end at 3.33.
TEST_CASE("random numbers do not depend on how many are drawn, and those of bf16 have tails") {
  const RngKey key{7, 1};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor all = Tensor::randn({200000}, key, dtype);
    for (const int64_t count : {1, 15, 16, 17, 1000})
      CHECK(Tensor::randn({count}, key, dtype).to_vector() == all.slice(0, 0, count).to_vector());
    const std::vector<double> values = all.to_vector();
    // 174 are expected, with a deviation of 13.
    const auto far =
        std::count_if(values.begin(), values.end(), [](double x) { return std::abs(x) > 3.33; });
    CHECK(far > 100);
    const Tensor even = Tensor::rand({200000}, key, dtype);
    CHECK(Tensor::rand({17}, key, dtype).to_vector() == even.slice(0, 0, 17).to_vector());
  }
}

TEST_CASE("indexing, and values of other types") {
  const Tensor x = Tensor::of({{1, 2, 3}, {4, 5, 6}});
  CHECK(x[1].to_vector() == std::vector<double>{4, 5, 6});
  CHECK(x[-2][2].item() == 3);
  CHECK(x[0].storage()->id() == x.storage()->id());
  CHECK(x.select(1, -1).to_vector<float>() == std::vector<float>{3, 6});
  CHECK(x.transpose(0, 1).to_vector<int32_t>() == std::vector<int32_t>{1, 4, 2, 5, 3, 6});
  CHECK(x.transpose(0, 1).slice(0, 1, 3).to_vector<uint8_t>() == std::vector<uint8_t>{2, 5, 3, 6});
  CHECK(Tensor::of({1, 0}, DType::bool_).to_vector<bool>() == std::vector<bool>{true, false});
  CHECK(Tensor::from<int64_t>({INT64_MAX}, {1}).item<int64_t>() == INT64_MAX);
  CHECK(Tensor::from<int64_t>({INT64_MAX}, {}).to_vector<int64_t>()[0] == INT64_MAX);
  CHECK(Tensor::zeros({0, 2}).to_vector().empty());
  CHECK_THROWS_WITH_AS(x[2], doctest::Contains("[select] expected an index in [-2, 2) on axis 0"),
                       Error);
  CHECK_THROWS_WITH_AS(x[-3], doctest::Contains("got -3"), Error);
  CHECK_THROWS_AS(Tensor::of(1)[0], Error);
  CHECK_THROWS_WITH_AS(Tensor::zeros({2}, DType::f32, kMeta).to_vector(),
                       doctest::Contains("[to_vector] expected a tensor that has values"), Error);
  CHECK_THROWS_WITH_AS(Tensor().to_vector(), doctest::Contains("an undefined tensor"), Error);
}
