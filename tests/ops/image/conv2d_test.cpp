#include "ops/image/conv2d.h"
#include "ops/precision.h"

#include <doctest/doctest.h>

#include "ops/dense/inplace.h"
#include "tests/error_bounds.h"
#include "tests/ops/samples.h"
#include "tests/stale_memory.h"

namespace frugal::ops {
namespace {

using frugal_test::largest_bound;
using frugal_test::leave_nan_behind;
using frugal_test::rounding_bound;
using frugal_test::sum_bound;

struct Layer {
  const char* name;
  Shape x, weight;
  Conv2dOptions options;
};

Conv2dOptions with(Pair stride, Pair padding, Pair dilation = {1, 1}, int64_t groups = 1) {
  return {stride, padding, dilation, groups};
}

// Every kind of window, and channels below, at and off the widths that kernels are made for.
const std::vector<Layer> kLayers = {
    {"3x3", {2, 8, 8, 64}, {64, 3, 3, 64}, with({1, 1}, {1, 1})},
    {"3x3, 32 to 64", {2, 9, 7, 32}, {64, 3, 3, 32}, with({1, 1}, {1, 1})},
    {"3x3, 64 to 32, no padding", {2, 9, 7, 64}, {32, 3, 3, 64}, with({1, 1}, {0, 0})},
    {"3x3, 40 to 56", {1, 6, 6, 40}, {56, 3, 3, 40}, with({1, 1}, {1, 1})},
    {"3x3, 33 to 35", {1, 6, 5, 33}, {35, 3, 3, 33}, with({1, 1}, {1, 1})},
    {"3x3, wide padding", {1, 6, 6, 48}, {32, 3, 3, 48}, with({1, 1}, {3, 3})},
    {"3x3, 16 channels", {3, 8, 8, 16}, {16, 3, 3, 16}, with({1, 1}, {1, 1})},
    {"first layer of CIFAR", {2, 12, 12, 3}, {16, 3, 3, 3}, with({1, 1}, {1, 1})},
    {"first layer of Fashion-MNIST", {2, 11, 11, 1}, {16, 3, 3, 1}, with({1, 1}, {1, 1})},
    {"ImageNet stem", {1, 21, 22, 3}, {64, 7, 7, 3}, with({2, 2}, {3, 3})},
    {"3x3 stride 2", {2, 9, 8, 32}, {64, 3, 3, 32}, with({2, 2}, {1, 1})},
    {"3x3 stride 3, rest cut off", {1, 11, 12, 16}, {16, 3, 3, 16}, with({3, 3}, {0, 0})},
    {"1x1", {2, 5, 5, 64}, {32, 1, 1, 64}, with({1, 1}, {0, 0})},
    {"1x1 to many", {2, 5, 5, 32}, {128, 1, 1, 32}, with({1, 1}, {0, 0})},
    {"1x1 stride 2, rest cut off", {2, 6, 6, 64}, {128, 1, 1, 64}, with({2, 2}, {0, 0})},
    {"1x1 stride 2, 3 channels", {1, 64, 64, 3}, {16, 1, 1, 3}, with({2, 2}, {0, 0})},
    {"1x1, every other row of 1 channel", {1, 16, 16, 1}, {1, 1, 1, 1}, with({2, 1}, {0, 0})},
    {"1x1 stride 3, 24 channels, rest cut off", {2, 8, 7, 24}, {8, 1, 1, 24}, with({3, 3}, {0, 0})},
    {"1x1 stride 2, groups", {2, 6, 6, 16}, {8, 1, 1, 4}, with({2, 2}, {0, 0}, {1, 1}, 4)},
    {"1x1 with padding", {1, 4, 4, 32}, {32, 1, 1, 32}, with({1, 1}, {1, 1})},
    {"dilated", {1, 10, 10, 32}, {32, 3, 3, 32}, with({1, 1}, {2, 2}, {2, 2})},
    {"dilated, strided", {1, 12, 10, 8}, {8, 3, 3, 8}, with({2, 1}, {2, 0}, {3, 2})},
    {"dilated beyond the image", {2, 6, 7, 32}, {48, 3, 3, 32}, with({1, 1}, {5, 7}, {5, 7})},
    {"dilated beyond the image, no bottom",
     {1, 6, 6, 5},
     {3, 2, 3, 5},
     with({1, 1}, {0, 4}, {4, 4})},
    {"uneven", {2, 9, 6, 32}, {48, 5, 2, 32}, with({1, 1}, {2, 0})},
    {"uneven stride", {2, 9, 6, 5}, {7, 3, 1, 5}, with({2, 3}, {1, 0})},
    {"one row", {1, 1, 20, 32}, {32, 1, 3, 32}, with({1, 1}, {0, 1})},
    {"window of the whole image", {3, 4, 5, 32}, {64, 4, 5, 32}, with({1, 1}, {0, 0})},
    {"two groups", {2, 6, 6, 32}, {64, 3, 3, 16}, with({1, 1}, {1, 1}, {1, 1}, 2)},
    {"three odd groups", {2, 5, 6, 9}, {6, 3, 3, 3}, with({1, 1}, {1, 1}, {1, 1}, 3)},
    {"depthwise", {2, 7, 7, 32}, {32, 3, 3, 1}, with({1, 1}, {1, 1}, {1, 1}, 32)},
    {"depthwise, two outputs each", {1, 7, 7, 6}, {12, 3, 3, 1}, with({2, 2}, {1, 1}, {1, 1}, 6)},
    {"1 to 1 channel", {1, 5, 5, 1}, {1, 3, 3, 1}, with({1, 1}, {1, 1})},
    {"stride 2 over one pixel", {2, 1, 1, 32}, {48, 3, 3, 32}, with({2, 2}, {1, 1})},
    {"stride 2 over one column", {2, 35, 1, 32}, {48, 3, 3, 32}, with({2, 2}, {1, 1})},
    {"stride 4, an edge that no window meets",
     {2, 14, 14, 32},
     {48, 3, 3, 32},
     with({4, 4}, {0, 0})},
    {"stride 3, one column of windows", {2, 9, 3, 16}, {16, 5, 5, 16}, with({3, 3}, {2, 2})},
};

// terms: in each sum.
void close(const char* pass, int64_t terms, const Tensor& got, const Tensor& expected) {
  CAPTURE(std::string(pass));
  REQUIRE(got.shape() == expected.shape());
  CHECK(error(got, expected.to_vector()) < largest_bound(terms));
}

}  // namespace

TEST_CASE("conv2d: a known convolution") {
  // One row of pixels 1 2 3 4, the window (1 10 100): a cross-correlation, nothing is turned.
  const Tensor x = Tensor::from<double>({1, 2, 3, 4}, {1, 1, 4, 1});
  const Tensor w = Tensor::from<double>({1, 10, 100}, {1, 1, 3, 1});
  const Tensor b = Tensor::from<double>({0.5}, {1});
  for (const DType dtype : {DType::f64, DType::f32}) {
    const auto run = [&](const Conv2dOptions& o) {
      return conv2d(cast(x, dtype), cast(w, dtype), cast(b, dtype), o).to_vector();
    };
    CHECK(run({}) == std::vector<double>{321.5, 432.5});
    CHECK(run(with({1, 1}, {0, 1})) == std::vector<double>{210.5, 321.5, 432.5, 43.5});
    CHECK(run(with({1, 2}, {0, 1})) == std::vector<double>{210.5, 432.5});
    CHECK(run(with({1, 1}, {0, 2}, {1, 2})) == std::vector<double>{310.5, 420.5, 31.5, 42.5});
  }
}

TEST_CASE("conv2d: channels and groups lie as documented") {
  // x has one pixel with channels 1 2 3 4; the weight of output k and input c is 10^k (c + 1).
  const Tensor x = Tensor::from<double>({1, 2, 3, 4}, {1, 1, 1, 4});
  const Tensor w = Tensor::from<double>({1, 2, 10, 20}, {2, 1, 1, 2});
  CHECK(conv2d(x, w, {}, with({1, 1}, {0, 0}, {1, 1}, 2)).to_vector() ==
        std::vector<double>{1 * 1 + 2 * 2, 3 * 10 + 4 * 20});
  const Tensor full = Tensor::from<double>({1, 2, 3, 4, 10, 20, 30, 40}, {2, 1, 1, 4});
  CHECK(conv2d(x, full, {}).to_vector() == std::vector<double>{30, 300});
}

TEST_CASE("conv2d: the f64 gradients are the adjoints of its forward") {
  // <conv(x, w), dy> = <x, backward_input(dy, w)> = <w, backward_weight(dy, x)>.
  const auto dot = [](const Tensor& a, const Tensor& b) {
    double sum = 0;
    for (int64_t i = 0; i < a.numel(); ++i) sum += a.item(i) * b.item(i);
    return sum;
  };
  for (const Layer& layer : kLayers) {
    CAPTURE(std::string(layer.name));
    const Tensor x = normals(layer.x, 1, DType::f64), w = normals(layer.weight, 2, DType::f64);
    const Tensor y = conv2d(x, w, {}, layer.options);
    const Tensor dy = normals(y.shape(), 3, DType::f64);
    const double expected = dot(y, dy);
    CHECK(dot(x, conv2d_backward_input(dy, w, layer.x, layer.options)) ==
          doctest::Approx(expected).epsilon(1e-9));
    CHECK(dot(w, conv2d_backward_weight(dy, x, layer.weight, layer.options)) ==
          doctest::Approx(expected).epsilon(1e-9));
  }
}

TEST_CASE("conv2d: f32 follows the f64 loops") {
  for (const Layer& layer : kLayers) {
    CAPTURE(std::string(layer.name));
    const Tensor x = normals(layer.x, 1), w = normals(layer.weight, 2);
    const Tensor b = normals({layer.weight[0]}, 4);
    const Tensor x64 = cast(x, DType::f64), w64 = cast(w, DType::f64);
    const int64_t window = layer.weight[1] * layer.weight[2];
    for (const bool bias : {false, true})
      close("forward", window * layer.weight[3] + 1,
            conv2d(x, w, bias ? b : Tensor(), layer.options),
            conv2d(x64, w64, bias ? cast(b, DType::f64) : Tensor(), layer.options));
    const Tensor dy = normals(conv2d(x64, w64, {}, layer.options).shape(), 3);
    const Tensor dy64 = cast(dy, DType::f64);
    close("dx", window * layer.weight[0], conv2d_backward_input(dy, w, layer.x, layer.options),
          conv2d_backward_input(dy64, w64, layer.x, layer.options));
    close("dw", dy.numel() / dy.size(3), conv2d_backward_weight(dy, x, layer.weight, layer.options),
          conv2d_backward_weight(dy64, x64, layer.weight, layer.options));
  }
}

TEST_CASE("conv2d: bf16 follows the f64 loops, whatever its scratchpad held") {
  const auto check = [](const char* pass, int64_t terms, const Tensor& got,
                        const Tensor& expected) {
    CAPTURE(std::string(pass));
    CHECK(error(got, expected.to_vector()) < largest_bound(terms) + rounding_bound(1, DType::bf16));
  };
  for (const Layer& layer : kLayers) {
    CAPTURE(std::string(layer.name));
    const Tensor x = normals(layer.x, 1, DType::bf16);
    const Tensor w = cast(normals(layer.weight, 2, DType::bf16), DType::f32);
    const Tensor x64 = cast(x, DType::f64), w64 = cast(w, DType::f64);
    const Tensor y64 = conv2d(x64, w64, {}, layer.options);
    const Tensor dy = normals(y64.shape(), 3, DType::bf16), dy64 = cast(dy, DType::f64);
    const int64_t window = layer.weight[1] * layer.weight[2];
    leave_nan_behind();
    check("forward", window * layer.weight[3], conv2d(x, w, {}, layer.options), y64);
    leave_nan_behind();
    check("dx", window * layer.weight[0], conv2d_backward_input(dy, w, layer.x, layer.options),
          conv2d_backward_input(dy64, w64, layer.x, layer.options));
    leave_nan_behind();
    check("dw", dy.numel() / dy.size(3), conv2d_backward_weight(dy, x, layer.weight, layer.options),
          conv2d_backward_weight(dy64, x64, layer.weight, layer.options));
  }
}

TEST_CASE("conv2d: strided operands, and no writes outside the output") {
  const Tensor x = normals({2, 6, 6, 32}, 1), w = normals({32, 3, 3, 32}, 2);
  const Conv2dOptions o = with({1, 1}, {1, 1});
  const Tensor y = conv2d(x, w, {}, o), dy = normals(y.shape(), 3);
  CHECK(same_bits(conv2d(with_gaps(x), with_gaps(w), {}, o), y));
  CHECK(same_bits(conv2d_backward_input(with_gaps(dy), with_gaps(w), x.shape(), o),
                  conv2d_backward_input(dy, w, x.shape(), o)));
  CHECK(same_bits(conv2d_backward_weight(with_gaps(dy), with_gaps(x), w.shape(), o),
                  conv2d_backward_weight(dy, x, w.shape(), o)));
}

TEST_CASE("conv2d: the same bits at every run; forward and dx for every number of threads") {
  const Conv2dOptions o = with({1, 1}, {1, 1});
  const Tensor x = normals({3, 8, 8, 32}, 1), w = normals({32, 3, 3, 32}, 2);
  const Tensor y = conv2d(x, w, {}, o), dy = normals(y.shape(), 3);
  const Tensor dx = conv2d_backward_input(dy, w, x.shape(), o);
  for (int n = 1; n <= 4; ++n) {
    const ThreadsScope scope(n);
    CHECK(same_bits(conv2d(x, w, {}, o), y));
    CHECK(same_bits(conv2d_backward_input(dy, w, x.shape(), o), dx));
    CHECK(same_bits(conv2d_backward_weight(dy, x, w.shape(), o),
                    conv2d_backward_weight(dy, x, w.shape(), o)));
  }
}

TEST_CASE("conv2d: in bf16 each thread makes the gradient of the weight of some images") {
  if (!bf16_products()) return;
  const Conv2dOptions o = with({1, 1}, {1, 1});
  const Shape weight{48, 3, 3, 32};
  const Tensor x = normals({7, 9, 8, 32}, 1, DType::bf16);
  const Tensor dy = normals({7, 9, 8, 48}, 2, DType::bf16);
  const auto part = [&](int64_t begin, int64_t end) {
    const ThreadsScope scope(1);
    return conv2d_backward_weight(dy.slice(0, begin, end), x.slice(0, begin, end), weight, o);
  };
  for (int n = 1; n <= 7; ++n) {
    CAPTURE(n);
    Tensor wanted = part(0, 7 / n);
    for (int i = 1; i < n; ++i) accumulate(wanted, part(7 * i / n, 7 * (i + 1) / n));
    const ThreadsScope scope(n);
    CHECK(same_bits(conv2d_backward_weight(dy, x, weight, o), wanted));
    const Tensor sum = clone(wanted);
    add_conv2d_backward_weight(sum, dy, x, o);
    accumulate(wanted, wanted);
    CHECK(same_bits(sum, wanted));
  }
}

TEST_CASE("conv2d: a gradient of the weight that is added has the bits of the sum") {
  for (const Layer& layer : kLayers)
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      CAPTURE(std::string(layer.name));
      CAPTURE(name_of(dtype));
      const Tensor x = normals(layer.x, 1, dtype);
      const Tensor w = normals(layer.weight, 2, dtype == DType::f64 ? dtype : DType::f32);
      const Tensor dy = normals(conv2d(x, w, {}, layer.options).shape(), 3, dtype);
      const Tensor wanted = clone(w), sum = clone(w);
      accumulate(wanted, conv2d_backward_weight(dy, x, layer.weight, layer.options));
      const uint64_t before = sum.storage()->version();
      leave_nan_behind();
      add_conv2d_backward_weight(sum, dy, x, layer.options);
      CHECK(same_bits(sum, wanted));
      CHECK(sum.storage()->version() != before);
    }
}

TEST_CASE("conv2d: a gradient of the input that is added has the bits of the sum") {
  for (const Layer& layer : kLayers)
    for (const DType dtype : {DType::f32, DType::f64}) {
      CAPTURE(std::string(layer.name));
      const Tensor x = normals(layer.x, 1, dtype), w = normals(layer.weight, 2, dtype);
      const Tensor dy = normals(conv2d(x, w, {}, layer.options).shape(), 3, dtype);
      const Tensor wanted = clone(x), sum = clone(x);
      accumulate(wanted, conv2d_backward_input(dy, w, layer.x, layer.options));
      const uint64_t before = sum.storage()->version();
      add_conv2d_backward_input(sum, dy, w, layer.options);
      CHECK(same_bits(sum, wanted));
      CHECK(sum.storage()->version() != before);
    }
}

// A weight of 11.25 MiB, which kernels take in parts of 192 and 128 output channels.
const Layer kLarge = {"large", {2, 4, 5, 1024}, {320, 3, 3, 1024}, with({1, 1}, {1, 1})};

// |got - expected| / |expected|
double distance(const Tensor& got, const Tensor& expected) {
  double error = 0, total = 0;
  for (int64_t i = 0; i < expected.numel(); ++i) {
    const double wanted = expected.item(i), off = got.item(i) - wanted;
    error += off * off;
    total += wanted * wanted;
  }
  return std::sqrt(error / total);
}

TEST_CASE("conv2d: a large weight gives what the f64 loops give") {
  const Conv2dOptions& o = kLarge.options;
  const Tensor x = normals(kLarge.x, 1), w = normals(kLarge.weight, 2), b = normals({320}, 4);
  const Tensor dy = normals({2, 4, 5, 320}, 3);
  const Tensor x64 = cast(x, DType::f64), w64 = cast(w, DType::f64), dy64 = cast(dy, DType::f64);
  for (const bool bias : {false, true})
    CHECK(distance(conv2d(x, w, bias ? b : Tensor(), o),
                   conv2d(x64, w64, bias ? cast(b, DType::f64) : Tensor(), o)) <
          sum_bound(9 * 1024 + 1));
  CHECK(distance(conv2d_backward_input(dy, w, kLarge.x, o),
                 conv2d_backward_input(dy64, w64, kLarge.x, o)) < sum_bound(9 * 320));
  CHECK(distance(conv2d_backward_weight(dy, x, kLarge.weight, o),
                 conv2d_backward_weight(dy64, x64, kLarge.weight, o)) < sum_bound(2 * 4 * 5));
}

TEST_CASE("conv2d: with a large weight, gradients are added part by part, from any layout") {
  const Conv2dOptions& o = kLarge.options;
  const Tensor x = normals(kLarge.x, 1), w = normals(kLarge.weight, 2);
  const Tensor dy = normals({2, 4, 5, 320}, 3), dense = with_gaps(dy);
  const Tensor dw = conv2d_backward_weight(dy, x, kLarge.weight, o);
  CHECK(same_bits(conv2d_backward_weight(dense, with_gaps(x), kLarge.weight, o), dw));
  const Tensor wanted = clone(w), sum = clone(w);
  accumulate(wanted, dw);
  add_conv2d_backward_weight(sum, dense, x, o);
  CHECK(same_bits(sum, wanted));
  const Tensor dx = conv2d_backward_input(dy, w, kLarge.x, o);
  CHECK(same_bits(conv2d_backward_input(dense, w, kLarge.x, o), dx));
  const Tensor total = clone(x), both = clone(x);
  accumulate(both, dx);
  add_conv2d_backward_input(total, dense, w, o);
  CHECK(distance(total, both) < sum_bound(9 * 320));
  const auto rows = [](const Tensor& t) { return t.slice(0, 1, 2); };
  CHECK(same_bits(conv2d_backward_input(rows(dy), w, {1, 4, 5, 1024}, o), rows(dx)));
}

TEST_CASE("conv2d: no images") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Conv2dOptions o = with({2, 2}, {1, 1});
    const Tensor x = Tensor::empty({0, 8, 8, 4}, dtype), w = normals({6, 3, 3, 4}, 1, dtype);
    const Tensor y = conv2d(x, w, {}, o);
    CHECK(y.shape() == Shape{0, 4, 4, 6});
    CHECK(conv2d_backward_input(y, w, x.shape(), o).shape() == x.shape());
    const Tensor dw = conv2d_backward_weight(y, x, w.shape(), o);
    CHECK(error(dw, std::vector<double>(static_cast<size_t>(w.numel()), 0.0)) == 0);
    const Conv2dOptions dilated = with({1, 1}, {7, 7}, {7, 7});
    const Tensor none = conv2d_backward_weight(conv2d(x, w, {}, dilated), x, w.shape(), dilated);
    CHECK(error(none, std::vector<double>(static_cast<size_t>(w.numel()), 0.0)) == 0);
  }
}

TEST_CASE("conv2d: meta tensors have shapes and run nothing") {
  const Tensor x = Tensor::empty({1 << 20, 224, 224, 3}, DType::f32, kMeta);
  const Tensor w = Tensor::empty({64, 7, 7, 3}, DType::f32, kMeta);
  const Conv2dOptions o = with({2, 2}, {3, 3});
  const Tensor y = conv2d(x, w, {}, o);
  CHECK(y.shape() == Shape{1 << 20, 112, 112, 64});
  CHECK(conv2d_backward_input(y, w, x.shape(), o).shape() == x.shape());
  CHECK(conv2d_backward_weight(y, x, w.shape(), o).device() == kMeta);
}

TEST_CASE("conv2d: scratch is workspace and is gone afterwards") {
  const MemoryReport before = allocator(kCpu).report();
  {
    const Tensor x = normals({1, 8, 8, 32}, 1), w = normals({64, 3, 3, 32}, 2);
    const Tensor y = conv2d(x, w, {}, with({2, 2}, {1, 1}));
    CHECK(y.storage()->category() == Category::activation);
    const Tensor dw = conv2d_backward_weight(y, x, w.shape(), with({2, 2}, {1, 1}));
    CHECK(dw.storage()->category() == Category::activation);
    CHECK(allocator(kCpu).report().of(Category::workspace) == before.of(Category::workspace));
  }
  CHECK(allocator(kCpu).report().live_total == before.live_total);
}

TEST_CASE("conv2d: errors say what was expected") {
  const Tensor x = normals({1, 6, 6, 4}, 1), w = normals({8, 3, 3, 4}, 2);
  fails("[conv2d] expected x with 4 axes, got [6, 4] f32 on cpu", [&] {
    conv2d(normals({6, 4}, 1), w, {});
  });
  fails("[conv2d] expected weight to be a tensor", [&] { conv2d(x, {}, {}); });
  fails("[conv2d] expected x of dtype f32, f64 or bf16, got [1, 6, 6, 4] f16",
        [&] { conv2d(cast(x, DType::f16), w, {}); });
  fails("[conv2d] expected tensors of dtype f32 on cpu",
        [&] { conv2d(x, cast(w, DType::f64), {}); });
  fails("[conv2d] expected a weight [K, R, S, C/groups] for 4 channels and 2 groups", [&] {
    conv2d(x, w, {}, with({1, 1}, {0, 0}, {1, 1}, 2));
  });
  fails("[conv2d] expected bias of shape [8]", [&] { conv2d(x, w, normals({4}, 3)); });
  fails("[conv2d] expected a window within the padded image", [&] {
    conv2d(x, normals({8, 7, 3, 4}, 2), {});
  });
  fails("[conv2d] expected a window of at least 1x1", [&] {
    conv2d(x, Tensor::empty({8, 0, 3, 4}), {});
  });
  for (const Conv2dOptions& o :
       {with({0, 1}, {0, 0}), with({1, 1}, {-1, 0}), with({1, 1}, {0, 0}, {1, 0}),
        with({1, 1}, {0, 0}, {1, 1}, 0), with({int64_t{1} << 40, 1}, {0, 0}),
        with({1, 1}, {INT64_MAX / 2, 0}), with({1, 1}, {0, 0}, {1, INT64_MAX})})
    fails("[conv2d] expected groups, strides and dilations of at least 1",
          [&] { conv2d(x, w, {}, o); });
  fails("[conv2d] expected an output that fits in memory", [&] {
    conv2d(x, w, {}, with({1, 1}, {INT32_MAX, INT32_MAX}));
  });
  fails("[conv2d backward] expected dy of shape [1, 4, 4, 8]", [&] {
    conv2d_backward_input(normals({1, 4, 5, 8}, 3), w, x.shape(), {});
  });
  fails("[conv2d backward] expected dy of dtype f32, f64 or bf16", [&] {
    conv2d_backward_weight(Tensor::zeros({1, 4, 4, 8}, DType::i32), x, w.shape(), {});
  });
  fails("[conv2d backward] expected tensors of dtype f64 on cpu", [&] {
    conv2d_backward_input(normals({1, 4, 4, 8}, 3, DType::f64), w, x.shape(), {});
  });
}

}  // namespace frugal::ops
