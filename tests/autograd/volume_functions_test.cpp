// Convolutions and pools of sequences and volumes against plain loops.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/volume_functions.h"
#include "core/rng.h"
#include "ops/dense/copy.h"

namespace frugal {
namespace {

Variable noise(const Shape& shape, uint64_t seed = 1) {
  const Tensor x = Tensor::empty(shape, DType::f64);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mut<double>()[i] = static_cast<double>(normal({seed, 2}, static_cast<uint64_t>(i)));
  return Variable(x, true);
}

double at(const Tensor& x, std::initializer_list<int64_t> index) {
  int64_t place = 0;
  int axis = 0;
  for (const int64_t i : index) place = place * x.size(axis++) + i;
  return x.data<double>()[place];
}

// Calls f(n, d, h, w, c) for every element of a volume.
template <class F>
void each(const Shape& s, F f) {
  for (int64_t n = 0; n < s[0]; ++n)
    for (int64_t d = 0; d < s[1]; ++d)
      for (int64_t h = 0; h < s[2]; ++h)
        for (int64_t w = 0; w < s[3]; ++w)
          for (int64_t c = 0; c < s[4]; ++c) f(n, d, h, w, c);
}

}  // namespace

TEST_CASE("conv3d: every output is the sum over its window") {
  const Variable x = noise({2, 4, 5, 3, 4}), weight = noise({2, 3, 2, 2, 2}, 2),
                 bias = noise({2}, 3);
  const Conv3dOptions o{{2, 1, 2}, {2, 1, 0}, {2, 1, 1}, 2};
  const Tensor y = conv3d(x, weight, bias, o).value();
  CHECK(y.shape() == Shape{2, 2, 6, 1, 2});
  each(y.shape(), [&](int64_t n, int64_t d, int64_t h, int64_t w, int64_t k) {
    double sum = bias.value().item(k);
    each({3, 2, 2, 2, 1}, [&](int64_t t, int64_t r, int64_t s, int64_t c, int64_t) {
      const int64_t i = d * 2 - 2 + t * 2, j = h - 1 + r, l = w * 2 + s;
      if (i < 0 || i >= 4 || j < 0 || j >= 5 || l < 0 || l >= 3) return;
      sum += at(x.value(), {n, i, j, l, k * 2 + c}) * at(weight.value(), {k, t, r, s, c});
    });
    CHECK(at(y, {n, d, h, w, k}) == doctest::Approx(sum).epsilon(1e-12));
  });
}

TEST_CASE("conv_transpose3d is the adjoint of conv3d, and f32 follows f64") {
  const Variable x = noise({1, 3, 2, 3, 2}), weight = noise({2, 3, 3, 2, 3}, 2);
  const ConvTranspose3dOptions o{{2, 1, 2}, {1, 1, 0}, {1, 0, 1}};
  const Tensor y = conv_transpose3d(x, weight, {}, o).value();
  CHECK(y.shape() == Shape{1, 6, 2, 7, 3});
  // <conv_transpose3d(x), v> = <x, conv3d(v)>
  const Variable v = noise(y.shape(), 5);
  const Tensor back = conv3d(v, weight, {}, {{2, 1, 2}, {1, 1, 0}}).value();
  REQUIRE(back.shape() == x.shape());
  double left = 0, right = 0;
  for (int64_t i = 0; i < y.numel(); ++i) left += y.item(i) * v.value().item(i);
  for (int64_t i = 0; i < back.numel(); ++i) right += back.item(i) * x.value().item(i);
  CHECK(left == doctest::Approx(right).epsilon(1e-12));
  const Tensor narrow = conv_transpose3d(Variable(ops::cast(x.value(), DType::f32)),
                                         Variable(ops::cast(weight.value(), DType::f32)), {}, o)
                            .value();
  for (int64_t i = 0; i < y.numel(); ++i)
    CHECK(narrow.item(i) == doctest::Approx(y.item(i)).epsilon(1e-4).scale(1));
}

TEST_CASE("pools of volumes take the maximum and the mean of each window") {
  const Variable x = noise({2, 5, 4, 6, 2});
  const Pool3dOptions o{{3, 2, 2}, {2, 2, 2}, {1, 0, 1}, false};
  const Variable most = max_pool3d(x, o), mean = avg_pool3d(x, o);
  CHECK(most.shape() == Shape{2, 3, 2, 4, 2});
  CHECK(mean.shape() == most.shape());
  each(most.shape(), [&](int64_t n, int64_t d, int64_t h, int64_t w, int64_t c) {
    double top = -INFINITY, sum = 0, cells = 0;
    for (int64_t i = std::max<int64_t>(2 * d - 1, 0); i < std::min<int64_t>(2 * d + 2, 5); ++i)
      for (int64_t j = 2 * h; j < 2 * h + 2; ++j)
        for (int64_t l = std::max<int64_t>(2 * w - 1, 0); l < std::min<int64_t>(2 * w + 1, 6);
             ++l) {
          top = std::max(top, at(x.value(), {n, i, j, l, c}));
          sum += at(x.value(), {n, i, j, l, c});
          cells += 1;
        }
    CHECK(at(most.value(), {n, d, h, w, c}) == top);
    CHECK(at(mean.value(), {n, d, h, w, c}) == doctest::Approx(sum / cells));
  });
  backward(sum(most));
  double total = 0;
  for (const double g : x.grad().to_vector()) total += g;
  CHECK(total == doctest::Approx(static_cast<double>(most.value().numel())));
}

TEST_CASE("maxima keep their index in the bits that the largest window needs") {
  const auto kept = [](const auto& function) {
    const int64_t before = allocator(kCpu).report().of(Category::activation);
    const Variable y = function();
    const int64_t numel = y.value().numel(), of_y = numel * size_of(y.value().dtype());
    const int64_t bytes = allocator(kCpu).report().of(Category::activation) - before - of_y;
    return static_cast<double>(bytes) * 8 / static_cast<double>(numel);
  };
  const Variable x = noise({4, 8, 8, 8, 16}), image = noise({4, 20, 20, 64});
  // A layer's windows of 2 x 2 need 2 bits in twice as many places, the layers 1 bit.
  CHECK(kept([&] { return max_pool3d(x, {}); }) == doctest::Approx(2 * 2 + 1));
  CHECK(kept([&] { return adaptive_max_pool3d(x, {4, 4, 4}); }) == doctest::Approx(2 * 2 + 1));
  CHECK(kept([&] { return adaptive_max_pool2d(image, 10, 20); }) == doctest::Approx(1));
  CHECK(kept([&] { return adaptive_max_pool2d(image, 5, 5); }) == doctest::Approx(4));
  CHECK(kept([&] { return adaptive_max_pool2d(image, 4, 4); }) == doctest::Approx(8));
}

TEST_CASE("adaptive pools of volumes and sequences, windows as PyTorch divides them") {
  const Variable x = noise({1, 5, 3, 4, 2});
  const Variable most = adaptive_max_pool3d(x, {2, 3, 1}), mean = adaptive_avg_pool3d(x, {2, 3, 1});
  CHECK(most.shape() == Shape{1, 2, 3, 1, 2});
  each(most.shape(), [&](int64_t n, int64_t d, int64_t h, int64_t, int64_t c) {
    double top = -INFINITY, sum = 0;
    for (int64_t i = 2 * d; i < 2 * d + 3; ++i)
      for (int64_t l = 0; l < 4; ++l) {
        top = std::max(top, at(x.value(), {n, i, h, l, c}));
        sum += at(x.value(), {n, i, h, l, c});
      }
    CHECK(at(most.value(), {n, d, h, 0, c}) == top);
    CHECK(at(mean.value(), {n, d, h, 0, c}) == doctest::Approx(sum / 12));
  });
  const Variable row(Tensor::from<double>({1, 5, 2, 4, 3}, {1, 5, 1}), true);
  CHECK(max_pool1d(row, {3, 2, 1}).value().to_vector() == std::vector<double>{5, 5, 4});
  CHECK(avg_pool1d(row, {2, 2, 0}).value().to_vector() == std::vector<double>{3, 3});
  CHECK(adaptive_max_pool1d(row, 2).value().to_vector() == std::vector<double>{5, 4});
  CHECK(adaptive_avg_pool1d(row, 1).value().to_vector() == std::vector<double>{3});
  CHECK_THROWS_WITH_AS(max_pool1d(x, {}), doctest::Contains("[max_pool1d] expected x with 3 axes"),
                       Error);
  CHECK_THROWS_WITH_AS(avg_pool3d(row, {}),
                       doctest::Contains("[avg_pool3d] expected x with 5 axes"), Error);
}

TEST_CASE("conv_transpose1d spreads each position over its window") {
  const Variable x(Tensor::from<double>({1, 2, 3}, {1, 3, 1}), true);
  const Variable weight(Tensor::from<double>({10, 1}, {1, 2, 1}), true);
  const Variable y = conv_transpose1d(x, weight, {}, {.stride = 2, .output_padding = 1});
  CHECK(y.value().to_vector() == std::vector<double>{10, 1, 20, 2, 30, 3, 0});
  backward(sum(y));
  CHECK(weight.grad().to_vector() == std::vector<double>{6, 6});
}

}  // namespace frugal
