#include "ops/image/conv_transpose2d.h"

#include <doctest/doctest.h>

#include "tests/error_bounds.h"
#include "tests/ops/samples.h"

namespace frugal::ops {
namespace {

// Straight from the definition: every input pixel spreads its window over the output.
std::vector<double> definition(const Tensor& x, const Tensor& w, const Tensor& bias, const Shape& y,
                               const ConvTranspose2dOptions& o) {
  std::vector<double> out(static_cast<size_t>(y.numel()));
  for (size_t i = 0; bias.defined() && i < out.size(); ++i)
    out[i] = bias.item(static_cast<int64_t>(i) % y[3]);
  const Shape &xs = x.shape(), &ws = w.shape();
  const int64_t per_c = xs[3] / o.groups, per_k = ws[3];
  for (int64_t n = 0; n < xs[0]; ++n)
    for (int64_t h = 0; h < xs[1]; ++h)
      for (int64_t v = 0; v < xs[2]; ++v)
        for (int64_t c = 0; c < xs[3]; ++c)
          for (int64_t r = 0; r < ws[1]; ++r)
            for (int64_t s = 0; s < ws[2]; ++s)
              for (int64_t k = 0; k < per_k; ++k) {
                const int64_t oh = h * o.stride[0] - o.padding[0] + r * o.dilation[0];
                const int64_t ow = v * o.stride[1] - o.padding[1] + s * o.dilation[1];
                if (oh < 0 || oh >= y[1] || ow < 0 || ow >= y[2]) continue;
                const int64_t to = ((n * y[1] + oh) * y[2] + ow) * y[3] + c / per_c * per_k + k;
                out[static_cast<size_t>(to)] += x.item(((n * xs[1] + h) * xs[2] + v) * xs[3] + c) *
                                                w.item(((c * ws[1] + r) * ws[2] + s) * ws[3] + k);
              }
  return out;
}

struct TransposedLayer {
  const char* name;
  Shape x, weight, y;
  ConvTranspose2dOptions options;
};

ConvTranspose2dOptions transposed(Pair stride, Pair padding, Pair output_padding = {0, 0},
                                  Pair dilation = {1, 1}, int64_t groups = 1) {
  return {stride, padding, output_padding, dilation, groups};
}

const std::vector<TransposedLayer> kTransposedLayers = {
    {"plain", {2, 3, 4, 3}, {3, 3, 2, 4}, {2, 5, 5, 4}, {}},
    {"32 channels", {1, 4, 4, 32}, {32, 3, 3, 48}, {1, 4, 4, 48}, transposed({1, 1}, {1, 1})},
    {"doubling", {2, 3, 4, 5}, {5, 2, 2, 3}, {2, 6, 8, 3}, transposed({2, 2}, {0, 0})},
    {"output padding",
     {1, 3, 4, 4},
     {4, 3, 3, 6},
     {1, 6, 8, 6},
     transposed({2, 2}, {1, 1}, {1, 1})},
    {"uneven",
     {1, 3, 5, 2},
     {2, 3, 2, 3},
     {1, 7, 14, 3},
     transposed({2, 3}, {0, 0}, {0, 0}, {1, 1})},
    {"dilated",
     {1, 4, 3, 4},
     {4, 3, 3, 4},
     {1, 8, 9, 4},
     transposed({1, 2}, {0, 0}, {0, 0}, {2, 2})},
    {"output padding beyond the stride",
     {1, 4, 4, 32},
     {32, 3, 3, 32},
     {1, 9, 9, 32},
     transposed({1, 1}, {0, 0}, {1, 1}, {2, 2})},
    {"two groups",
     {2, 3, 3, 4},
     {4, 2, 2, 3},
     {2, 4, 4, 6},
     transposed({1, 1}, {0, 0}, {0, 0}, {1, 1}, 2)},
    {"depthwise",
     {1, 3, 3, 8},
     {8, 3, 3, 1},
     {1, 3, 3, 8},
     transposed({1, 1}, {1, 1}, {0, 0}, {1, 1}, 8)},
};

}  // namespace

TEST_CASE("conv_transpose2d: a known layer") {
  const Tensor x = Tensor::from<double>({1, 2}, {1, 1, 2, 1});
  const Tensor w = Tensor::from<double>({1, 10, 100}, {1, 1, 3, 1});
  const Tensor b = Tensor::from<double>({0.5}, {1});
  CHECK(conv_transpose2d(x, w, {}).to_vector() == std::vector<double>{1, 12, 120, 200});
  CHECK(conv_transpose2d(x, w, b, transposed({1, 2}, {0, 1})).to_vector() ==
        std::vector<double>{10.5, 102.5, 20.5});
  CHECK(conv_transpose2d(x, w, {}, transposed({1, 2}, {0, 1}, {0, 1})).to_vector() ==
        std::vector<double>{10, 102, 20, 200});
}

TEST_CASE("conv_transpose2d: follows its definition, and its gradients are its adjoints") {
  const auto dot = [](const Tensor& a, const Tensor& b) {
    double sum = 0;
    for (int64_t i = 0; i < a.numel(); ++i) sum += a.item(i) * b.item(i);
    return sum;
  };
  for (const TransposedLayer& layer : kTransposedLayers) {
    CAPTURE(std::string(layer.name));
    const ConvTranspose2dOptions& o = layer.options;
    const Tensor x = normals(layer.x, 1), w = normals(layer.weight, 2);
    const Tensor b = normals({layer.y[3]}, 3), dy = normals(layer.y, 4);
    const Tensor x64 = cast(x, DType::f64), w64 = cast(w, DType::f64), dy64 = cast(dy, DType::f64);
    const Tensor y64 = conv_transpose2d(x64, w64, {}, o);
    REQUIRE(y64.shape() == layer.y);
    CHECK(error(y64, definition(x, w, {}, layer.y, o)) < 1e-12);
    const int64_t window = layer.weight[1] * layer.weight[2];
    const double bound = frugal_test::largest_bound(window * std::max(layer.x[3], layer.y[3]) + 1);
    CHECK(error(conv_transpose2d(x, w, {}, o), y64.to_vector()) < bound);
    CHECK(error(conv_transpose2d(x, w, b, o), definition(x, w, b, layer.y, o)) < bound);
    CHECK(same_bits(conv_transpose2d(with_gaps(x), with_gaps(w), b, o),
                    conv_transpose2d(x, w, b, o)));

    const Tensor dx64 = conv_transpose2d_backward_input(dy64, w64, layer.x, o);
    const Tensor dw64 = conv_transpose2d_backward_weight(dy64, x64, layer.weight, o);
    CHECK(dot(x64, dx64) == doctest::Approx(dot(y64, dy64)).epsilon(1e-9));
    CHECK(dot(w64, dw64) == doctest::Approx(dot(y64, dy64)).epsilon(1e-9));
    CHECK(error(conv_transpose2d_backward_input(dy, w, layer.x, o), dx64.to_vector()) < bound);
    CHECK(error(conv_transpose2d_backward_weight(dy, x, layer.weight, o), dw64.to_vector()) <
          frugal_test::largest_bound(x.numel() / x.size(3)));
  }
}

TEST_CASE("conv_transpose2d: no images, and meta") {
  const Tensor w = normals({4, 3, 3, 2}, 1);
  const Tensor y = conv_transpose2d(Tensor::empty({0, 5, 5, 4}), w, {});
  CHECK(y.shape() == Shape{0, 7, 7, 2});
  CHECK(
      conv_transpose2d_backward_weight(y, Tensor::empty({0, 5, 5, 4}), w.shape(), {}).to_vector() ==
      std::vector<double>(static_cast<size_t>(w.numel()), 0.0));
  const Tensor image = Tensor::empty({1 << 16, 64, 64, 4}, DType::f32, kMeta);
  CHECK(conv_transpose2d(image, Tensor::empty({4, 2, 2, 3}, DType::f32, kMeta), {},
                         transposed({2, 2}, {0, 0}))
            .shape() == Shape{1 << 16, 128, 128, 3});
}

TEST_CASE("conv_transpose2d: errors say what was expected") {
  const Tensor x = normals({1, 4, 4, 3}, 1), w = normals({3, 3, 3, 4}, 2);
  fails("[conv_transpose2d] expected x with 4 axes",
        [&] { conv_transpose2d(w.select(0, 0), w, {}); });
  fails("[conv_transpose2d] expected a weight [C, R, S, K/groups] for 3 channels and 1 groups",
        [&] {
          conv_transpose2d(x, normals({4, 3, 3, 3}, 2), {});
        });
  fails("[conv_transpose2d] expected a weight [C, R, S, K/groups] for 3 channels and 2 groups",
        [&] {
          conv_transpose2d(x, w, {}, transposed({1, 1}, {0, 0}, {0, 0}, {1, 1}, 2));
        });
  fails("[conv_transpose2d] expected bias of shape [4]",
        [&] { conv_transpose2d(x, w, normals({3}, 1)); });
  for (const ConvTranspose2dOptions& o :
       {transposed({2, 2}, {0, 0}, {2, 0}), transposed({1, 1}, {0, 0}, {0, 1}),
        transposed({0, 1}, {0, 0}), transposed({1, 1}, {-1, 0}),
        transposed({1, 1}, {0, 0}, {0, 0}, {1, 0}), transposed({INT64_MAX, 1}, {0, 0})})
    fails("output padding in [0, max(stride, dilation))", [&] { conv_transpose2d(x, w, {}, o); });
  fails("[conv_transpose2d] expected an output of at least 1x1", [&] {
    conv_transpose2d(x, w, {}, transposed({1, 1}, {3, 0}));
  });
  fails("[conv_transpose2d] expected tensors of dtype f32 on cpu",
        [&] { conv_transpose2d(x, cast(w, DType::f64), {}); });
  fails("[conv_transpose2d backward] expected dy of shape [1, 6, 6, 4]", [&] {
    conv_transpose2d_backward_input(normals({1, 6, 5, 4}, 1), w, x.shape(), {});
  });
  fails("[conv_transpose2d backward] expected dy of shape [1, 6, 6, 4]", [&] {
    conv_transpose2d_backward_weight(normals({1, 6, 5, 4}, 1), x, w.shape(), {});
  });
}

}  // namespace frugal::ops
