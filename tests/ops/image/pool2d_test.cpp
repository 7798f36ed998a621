#include "ops/image/pool2d.h"

#include <doctest/doctest.h>

#include "ops/image/window_codes.h"
#include "tests/ops/samples.h"

namespace frugal::ops {
namespace {

Pool2dOptions pool(Pair kernel, Pair stride, Pair padding = {0, 0}, bool include_pad = true) {
  return {kernel, stride, padding, include_pad};
}

struct Case {
  const char* name;
  Shape x;
  Pool2dOptions options;
};
const std::vector<Case> kCases = {
    {"2x2", {2, 6, 8, 5}, pool({2, 2}, {2, 2})},
    {"rest cut off", {1, 7, 5, 64}, pool({2, 2}, {2, 2})},
    {"stem", {2, 9, 12, 67}, pool({3, 3}, {2, 2}, {1, 1})},
    {"overlapping", {1, 6, 6, 130}, pool({3, 3}, {1, 1}, {1, 1})},
    {"gaps between windows", {1, 9, 9, 3}, pool({2, 2}, {3, 4})},
    {"uneven", {3, 8, 5, 16}, pool({4, 1}, {1, 2}, {2, 0})},
    {"whole image", {2, 5, 7, 4}, pool({5, 7}, {1, 1})},
    {"16x16, the most a byte counts", {1, 16, 17, 3}, pool({16, 16}, {1, 1})},
    {"17x16, more than a byte counts", {1, 18, 16, 3}, pool({17, 16}, {1, 1})},
    {"one pixel", {1, 1, 1, 1}, pool({1, 1}, {1, 1})},
};

// Calls f(output, input or -1 where the cell is padding, cell) for every cell of every window.
template <class F>
void for_cells(const Shape& x, const Shape& y, const Pool2dOptions& o, F f) {
  for (int64_t i = 0; i < y.numel(); ++i) {
    const int64_t c = i % y[3], ow = i / y[3] % y[2], oh = i / (y[3] * y[2]) % y[1];
    const int64_t n = i / (y[3] * y[2] * y[1]);
    for (int64_t cell = 0; cell < o.kernel[0] * o.kernel[1]; ++cell) {
      const int64_t h = oh * o.stride[0] - o.padding[0] + cell / o.kernel[1];
      const int64_t w = ow * o.stride[1] - o.padding[1] + cell % o.kernel[1];
      const bool inside = h >= 0 && h < x[1] && w >= 0 && w < x[2];
      f(i, inside ? ((n * x[1] + h) * x[2] + w) * x[3] + c : -1, cell);
    }
  }
}

}  // namespace

TEST_CASE("max_pool2d: known windows") {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const Tensor x =
        cast(Tensor::from<double>({1, 5, 2, 0, 4, 3, 9, 7, 6, 8, -1, 1}, {1, 3, 4, 1}), dtype);
    const MaxPooled out = max_pool2d(x, pool({2, 2}, {1, 2}));
    CHECK(out.y.to_vector() == std::vector<double>{5, 9, 8, 9});
    CHECK(out.index.dtype() == DType::u8);
    CHECK(out.index.to_vector() == std::vector<double>{1, 2, 3, 0});
    const Tensor dy = cast(Tensor::from<double>({1, 10, 100, 1000}, {1, 2, 2, 1}), dtype);
    CHECK(max_pool2d_backward(dy, out.index, x.shape(), pool({2, 2}, {1, 2})).to_vector() ==
          std::vector<double>{0, 1, 0, 0, 0, 0, 1010, 0, 0, 100, 0, 0});
  }
}

TEST_CASE("max_pool2d: padding never wins, the first of equals does, NaN is never lost") {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const Pool2dOptions o = pool({3, 3}, {2, 2}, {1, 1});
    const MaxPooled low = max_pool2d(Tensor::full({1, 3, 3, 2}, -kInf, dtype), o);
    CHECK(low.y.to_vector() == std::vector<double>(8, -kInf));
    // The first cell inside the image: of the window's corner, edges and middle.
    CHECK(low.index.to_vector() == std::vector<double>{4, 4, 3, 3, 1, 1, 0, 0});
    const MaxPooled negative = max_pool2d(Tensor::full({1, 3, 3, 1}, -5, dtype), o);
    CHECK(negative.y.to_vector() == std::vector<double>(4, -5));

    const Tensor x = cast(Tensor::from<double>({1, kNan, 3, 4, 5, kInf}, {1, 1, 6, 1}), dtype);
    const MaxPooled out = max_pool2d(x, pool({1, 3}, {1, 1}));
    CHECK(error(out.y, {kNan, kNan, 5, kInf}) == 0);
    CHECK(out.index.to_vector() == std::vector<double>{1, 0, 2, 2});
  }
}

TEST_CASE("max_pool2d: any window, against the definition") {
  for (const Case& test : kCases)
    for (const DType dtype : {DType::f64, DType::f32}) {
      CAPTURE(std::string(test.name));
      const Tensor x = normals(test.x, 1, dtype);
      const MaxPooled out = max_pool2d(x, test.options);
      const Shape shape = pool2d_shape("test", test.x, test.options);
      REQUIRE(out.y.shape() == shape);
      const int64_t cells = test.options.kernel[0] * test.options.kernel[1];
      CHECK(out.index.nbytes() == out.y.numel() * (cells <= 256 ? 1 : 4));

      std::vector<double> best(static_cast<size_t>(shape.numel()), -kInf), at(best.size(), 0);
      std::vector<double> gradient(static_cast<size_t>(x.numel()), 0);
      const std::vector<double> values = x.to_vector();
      std::vector<int64_t> from(best.size());
      for_cells(test.x, shape, test.options, [&](int64_t i, int64_t j, int64_t cell) {
        const auto k = static_cast<size_t>(i);
        if (j < 0 || values[static_cast<size_t>(j)] <= best[k]) return;
        best[k] = values[static_cast<size_t>(j)];
        at[k] = static_cast<double>(cell);
        from[k] = j;
      });
      CHECK(error(out.y, best) == 0);
      CHECK(error(out.index, at) == 0);
      const Tensor dy = normals(shape, 2, dtype);
      for (size_t k = 0; k < best.size(); ++k)
        gradient[static_cast<size_t>(from[k])] += dy.item(static_cast<int64_t>(k));
      const Tensor dx = max_pool2d_backward(dy, out.index, test.x, test.options);
      CHECK(error(dx, gradient) < (dtype == DType::f32 ? 1e-6 : 1e-14));

      const MaxPooled gaps = max_pool2d(with_gaps(x), test.options);
      CHECK(same_bits(gaps.y, out.y));
      CHECK(same_bits(
          max_pool2d_backward(with_gaps(dy), with_gaps(out.index), test.x, test.options), dx));
    }
}

TEST_CASE("avg_pool2d: any window, padding counted or not, against the definition") {
  for (const Case& test : kCases)
    for (const DType dtype : {DType::f64, DType::f32})
      for (const bool include_pad : {false, true}) {
        CAPTURE(std::string(test.name));
        Pool2dOptions o = test.options;
        o.count_include_pad = include_pad;
        const Tensor x = normals(test.x, 1, dtype);
        const Shape shape = pool2d_shape("test", test.x, o);
        const Tensor dy = normals(shape, 2, dtype);
        std::vector<double> sum(static_cast<size_t>(shape.numel()), 0), count(sum.size(), 0);
        std::vector<double> gradient(static_cast<size_t>(x.numel()), 0);
        const std::vector<double> values = x.to_vector();
        // These windows never hang over the padding's end, where not even padding counts.
        for_cells(test.x, shape, o, [&](int64_t i, int64_t j, int64_t) {
          const auto k = static_cast<size_t>(i);
          if (j >= 0) sum[k] += values[static_cast<size_t>(j)];
          if (j >= 0 || include_pad) count[k] += 1;
        });
        for_cells(test.x, shape, o, [&](int64_t i, int64_t j, int64_t) {
          if (j >= 0)
            gradient[static_cast<size_t>(j)] += dy.item(i) / count[static_cast<size_t>(i)];
        });
        for (size_t k = 0; k < sum.size(); ++k) sum[k] /= count[k];
        const double tolerance = dtype == DType::f32 ? 3e-6 : 1e-14;
        CHECK(error(avg_pool2d(x, o), sum) < tolerance);
        CHECK(error(avg_pool2d_backward(dy, test.x, o), gradient) < tolerance);
        CHECK(same_bits(avg_pool2d(with_gaps(x), o), avg_pool2d(x, o)));
      }
}

TEST_CASE("adaptive_avg_pool2d: windows start at floor(iH/OH) and end at ceil((i+1)H/OH)") {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const Tensor x = cast(Tensor::from<double>({1, 2, 3, 4, 5}, {1, 1, 5, 1}), dtype);
    CHECK(adaptive_avg_pool2d(x, 1, 3).to_vector() == std::vector<double>{1.5, 3, 4.5});
    CHECK(adaptive_avg_pool2d(x, 1, 2).to_vector() == std::vector<double>{2, 4});
    CHECK(adaptive_avg_pool2d(x, 1, 5).to_vector() == x.to_vector());
    // More outputs than inputs repeat.
    CHECK(adaptive_avg_pool2d(x.slice(2, 0, 2), 2, 4).to_vector() ==
          std::vector<double>{1, 1, 2, 2, 1, 1, 2, 2});
    const Tensor dy = cast(Tensor::from<double>({6, 12, 24}, {1, 1, 3, 1}), dtype);
    CHECK(adaptive_avg_pool2d_backward(dy, x.shape()).to_vector() ==
          std::vector<double>{3, 7, 4, 16, 12});
  }
}

TEST_CASE("global_avg_pool2d: the mean of an image") {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const Tensor x = normals({3, 6, 5, 20}, 1, dtype);
    const Tensor y = global_avg_pool2d(x);
    CHECK(y.shape() == Shape{3, 20});
    CHECK(error(y, adaptive_avg_pool2d(x, 1, 1).to_vector()) < 1e-6);
    const Tensor dy = normals({3, 20}, 2, dtype);
    const Tensor dx = global_avg_pool2d_backward(dy, x.shape());
    for (int64_t i : {0, 7, 600, 1799})
      CHECK(dx.item(i) == doctest::Approx(dy.item(i / 600 * 20 + i % 20) / 30));
  }
  // A million pixels keep their mean: the sum does not lose low bits.
  const Tensor large = Tensor::full({1, 1024, 1024, 2}, 1.1f);
  CHECK(error(global_avg_pool2d(large), {1.1, 1.1}) < 1e-5);
}

TEST_CASE("pool2d: the same bits for every number of threads") {
  const Pool2dOptions o = pool({3, 3}, {2, 2}, {1, 1});
  const Tensor x = normals({3, 40, 40, 24}, 1);
  const MaxPooled out = max_pool2d(x, o);
  const Tensor dy = normals(out.y.shape(), 2);
  const Tensor dx = max_pool2d_backward(dy, out.index, x.shape(), o);
  const Tensor mean = avg_pool2d(x, o), dmean = avg_pool2d_backward(dy, x.shape(), o);
  for (int threads = 1; threads <= 4; ++threads) {
    const ThreadsScope scope(threads);
    CHECK(same_bits(max_pool2d(x, o).y, out.y));
    CHECK(same_bits(max_pool2d(x, o).index, out.index));
    CHECK(same_bits(max_pool2d_backward(dy, out.index, x.shape(), o), dx));
    CHECK(same_bits(avg_pool2d(x, o), mean));
    CHECK(same_bits(avg_pool2d_backward(dy, x.shape(), o), dmean));
  }
}

TEST_CASE("pool2d: no images, and meta") {
  const Pool2dOptions o = pool({2, 2}, {2, 2});
  const Tensor none = Tensor::empty({0, 4, 4, 3});
  const MaxPooled out = max_pool2d(none, o);
  CHECK(out.y.shape() == Shape{0, 2, 2, 3});
  CHECK(max_pool2d_backward(out.y, out.index, none.shape(), o).shape() == none.shape());
  CHECK(avg_pool2d(none, o).shape() == Shape{0, 2, 2, 3});
  CHECK(avg_pool2d_backward(out.y, none.shape(), o).shape() == none.shape());
  CHECK(global_avg_pool2d(none).shape() == Shape{0, 3});
  const Tensor meta = Tensor::empty({1 << 20, 112, 112, 64}, DType::f32, kMeta);
  CHECK(max_pool2d(meta, o).index.nbytes() == (int64_t{1} << 20) * 56 * 56 * 64);
  CHECK(adaptive_avg_pool2d(meta, 7, 7).shape() == Shape{1 << 20, 7, 7, 64});
}

TEST_CASE("pool2d: errors say what was expected") {
  const Tensor x = normals({1, 4, 4, 2}, 1);
  fails("[max_pool2d] expected x [N, H, W, C], got [4, 4, 2]",
        [&] { max_pool2d(x.select(0, 0), {}); });
  for (const Pool2dOptions& o :
       {pool({2, 2}, {2, 2}, {2, 0}), pool({0, 2}, {2, 2}), pool({2, 2}, {2, 0}),
        pool({2, 2}, {2, 2}, {0, -1}), pool({INT64_MAX, 1}, {1, 1}, {INT64_MAX / 4, 0})}) {
    fails("[max_pool2d] expected a kernel and stride of at least 1", [&] { max_pool2d(x, o); });
    fails("[avg_pool2d] expected a kernel and stride of at least 1", [&] { avg_pool2d(x, o); });
  }
  fails("[max_pool2d] expected a window within the padded image", [&] {
    max_pool2d(x, pool({5, 2}, {1, 1}));
  });
  fails("[avg_pool2d] expected a window within the padded image", [&] {
    avg_pool2d(Tensor::empty({1, 0, 4, 2}), pool({2, 2}, {1, 1}, {1, 1}));
  });
  fails("[max_pool2d] expected x of dtype f32, f64 or bf16",
        [&] { max_pool2d(cast(x, DType::i32), {}); });
  fails("[avg_pool2d] expected x to be a tensor", [&] { avg_pool2d({}, {}); });
  fails("[adaptive_avg_pool2d] expected an image and an output of at least 1x1",
        [&] { adaptive_avg_pool2d(x, 1, 0); });
  fails("[global_avg_pool2d] expected x with 4 axes", [&] { global_avg_pool2d(x.select(0, 0)); });
  const MaxPooled out = max_pool2d(x, {});
  fails("[max_pool2d backward] expected dy of shape [1, 2, 2, 2]",
        [&] { max_pool2d_backward(x, out.index, x.shape(), {}); });
  fails("[max_pool2d backward] expected index of shape [1, 2, 2, 2]",
        [&] { max_pool2d_backward(out.y, out.index.select(0, 0), x.shape(), {}); });
  fails("[avg_pool2d backward] expected dy of shape [1, 2, 2, 2]",
        [&] { avg_pool2d_backward(x, x.shape(), {}); });
  fails("[global_avg_pool2d backward] expected dy of shape [1, 2]",
        [&] { global_avg_pool2d_backward(out.y, x.shape()); });
}

TEST_CASE("the index of small windows comes back from 1, 2 or 4 bits") {
  CHECK(window_index_bits(2) == 1);
  CHECK(window_index_bits(3) == 2);
  CHECK(window_index_bits(4) == 2);
  CHECK(window_index_bits(5) == 4);
  CHECK(window_index_bits(16) == 4);
  CHECK(window_index_bits(17) == 8);
  for (const int bits : {1, 2, 4})
    for (const int64_t n : {0, 1, 2, 7, 200003}) {
      CAPTURE(bits);
      CAPTURE(n);
      Tensor index = Tensor::empty({n, 1}, DType::u8);
      for (int64_t i = 0; i < n; ++i)
        index.mut<uint8_t>()[i] = static_cast<uint8_t>((i * i + i / 3) % (1 << bits));
      const Tensor packed = pack_window_index(index, bits);
      CHECK(packed.numel() == (n * bits + 7) / 8);
      CHECK(same_bits(unpack_window_index(packed, bits, index.shape()), index));
    }
}

}  // namespace frugal::ops
