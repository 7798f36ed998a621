#include "ops/image/group_norm.h"

#include <doctest/doctest.h>

#include "tests/ops/samples.h"

namespace frugal::ops {

TEST_CASE("group_norm: one channel a row and one group are layer_norm's rows") {
  const Tensor x = normals({6, 9, 1}, 1, DType::f64), rows = x.view({6, 9});
  const LayerNormOutput groups = group_norm(x, 1, {}, {}, 1e-5),
                        layer = layer_norm(rows, {}, {}, 1e-5);
  CHECK(error(groups.y.view({6, 9}), layer.y.to_vector()) < 1e-12);
  CHECK(error(groups.moments.invstd.view({6}), layer.moments.invstd.to_vector()) < 1e-12);
}

TEST_CASE("group_norm: every group has mean 0 and variance 1; f32 and its gradients are f64's") {
  for (const Shape& shape : {Shape{2, 65, 6}, Shape{3, 7, 5, 12}, Shape{5, 6}})
    for (const int64_t groups : {1, 2, 3, 6}) {
      CAPTURE(groups);
      const int64_t c = shape.back();
      const Tensor x = normals(shape, 1, DType::f64, 2, 20), dy = normals(shape, 2, DType::f64);
      const Tensor weight = normals({c}, 3, DType::f64), bias = normals({c}, 4, DType::f64);
      const int64_t width = c / groups, rows = x.numel() / shape[0] / c;
      const LayerNormOutput fine = group_norm(x, groups, {}, {}, 1e-12);
      for (int64_t n = 0; n < shape[0] && rows * width > 1; ++n)
        for (int64_t g = 0; g < groups; ++g) {
          double sum = 0, squares = 0;
          for (int64_t i = 0; i < rows * width; ++i) {
            const double y = fine.y.item((n * rows + i / width) * c + g * width + i % width);
            sum += y, squares += y * y;
          }
          CHECK(sum == doctest::Approx(0).scale(1));
          CHECK(squares == doctest::Approx(static_cast<double>(rows * width)));
        }
      const auto all = [&](DType dtype) {
        const Tensor v = cast(x, dtype), w = cast(weight, dtype), b = cast(bias, dtype);
        const LayerNormOutput out = group_norm(v, groups, w, b, 1e-3);
        CHECK(same_bits(group_norm_apply(v, out.moments, w, b), out.y));
        const LayerNormGradients g = group_norm_backward(cast(dy, dtype), v, out.moments, w, {});
        return std::vector<Tensor>{out.y, g.dx, g.dweight, g.dbias};
      };
      const std::vector<Tensor> exact = all(DType::f64), coarse = all(DType::f32);
      for (size_t i = 0; i < exact.size(); ++i)
        CHECK(error(coarse[i], exact[i].to_vector()) < 3e-4);
      const ThreadsScope threads(3);
      const std::vector<Tensor> again = all(DType::f32);
      for (size_t i = 0; i < again.size(); ++i) CHECK(same_bits(again[i], coarse[i]));
    }
}

TEST_CASE("group_norm: a large mean costs no digits of the variance") {
  // Steps of 1 / 8 about 4e3 and 1e6, which f32 holds exactly. findings/torch_group_norm.sh
  for (const double centre : {4000.0, 1e6}) {
    const Tensor x = Tensor::empty({2, 256, 8});
    for (int64_t i = 0; i < x.numel(); ++i)
      x.mut<float>()[i] = static_cast<float>(centre + (i % 2 == 0 ? 0.125 : -0.125));
    const LayerNormOutput out = group_norm(x, 2, {}, {}, 1e-12);
    CHECK(out.moments.mean.item(0) == centre);
    CHECK(out.moments.invstd.item(0) == doctest::Approx(8).epsilon(1e-6));
    for (int64_t i = 0; i < x.numel(); ++i)
      REQUIRE(out.y.item(i) == doctest::Approx(i % 2 == 0 ? 1 : -1).epsilon(1e-6));
  }
}

TEST_CASE("group_norm: what rebuild and backward refuse") {
  const Tensor x = normals({2, 3, 4}, 1);
  const RowMoments moments = group_norm(x, 2, {}, {}, 1e-5).moments;
  CHECK_THROWS_WITH_AS(group_norm_apply(normals({3, 3, 4}, 1), moments, {}, {}),
                       doctest::Contains("[group_norm] expected statistics [3, groups]"), Error);
  CHECK_THROWS_WITH_AS(group_norm_backward(normals({2, 3}, 1), x, moments, {}, {}),
                       doctest::Contains("[group_norm_backward] expected dy of shape [2, 3, 4]"),
                       Error);
}

}  // namespace frugal::ops
