#include "ops/optimizer/clip.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

namespace frugal::ops {

TEST_CASE("the joint norm is that of all tensors, and clipping meets it") {
  const Tensor x = Tensor::from<double>({3, 0}, {2}), y = Tensor::from<double>({4}, {});
  CHECK(joint_norm({}).item() == 0);
  CHECK(joint_norm({x}).item() == 3);
  const Tensor norm = joint_norm({x, y});
  CHECK(norm.item() == 5);
  clip_to({x, y}, norm, 5);
  CHECK(y.item() == 4);
  const uint64_t version = y.storage()->version();
  clip_to({x, y}, norm, 1);
  CHECK(y.storage()->version() > version);
  CHECK(y.item() == 4 * (1 / (5 + 1e-6)));
  CHECK(x.item() == 3 * (1 / (5 + 1e-6)));
  const double before = y.item();
  for (const double length : {std::numeric_limits<double>::infinity(), std::nan("")})
    clip_to({y}, Tensor::full({}, length, DType::f64), 1);
  CHECK(y.item() == before);
  CHECK(joint_norm({Tensor::zeros({3}, DType::f32, kMeta)}).device() == kMeta);
}

TEST_CASE("a step may be made with a finite norm, and a finite loss or no target that counts") {
  const Tensor fine = Tensor::full({}, 2), bad = Tensor::full({}, std::nan(""));
  const Tensor one = Tensor::full({}, 1, DType::f64), wide = Tensor::full({}, INFINITY, DType::f64);
  const Tensor none = Tensor::from<int64_t>({-7, -7}, {2}),
               some = Tensor::from<int64_t>({-7, 0}, {2});
  const Tensor unknown = Tensor::from<float>({-1, -1}, {1, 2}),
               labels = Tensor::from<float>({-1, 0}, {1, 2});
  const auto may = [](const Tensor& loss, const Tensor& target, const Tensor& norm) {
    return may_step(loss, target, -7, norm).item() == 1;
  };
  CHECK(may(fine, some, {}));
  CHECK(may(fine, some, one));
  CHECK_FALSE(may(fine, some, wide));
  CHECK_FALSE(may(bad, some, one));
  CHECK_FALSE(may(bad, labels, one));
  CHECK(may(bad, none, one));
  CHECK(may(bad, unknown, {}));
  CHECK_FALSE(may(bad, none, wide));
}

TEST_CASE("clipping and the check before a step refuse other tensors by name") {
  const Tensor x = Tensor::zeros({2}), norm = Tensor::zeros({}, DType::f64);
  const Tensor loss = Tensor::zeros({}), target = Tensor::zeros({2}, DType::i64);
  CHECK_THROWS_WITH_AS(joint_norm({x, Tensor::zeros({2}, DType::f32, kMeta)}),
                       doctest::Contains("[joint_norm] expected all parameters on one device"),
                       Error);
  CHECK_THROWS_WITH_AS(clip_to({x}, loss, 1), doctest::Contains("[clip_to] expected the norm of"),
                       Error);
  CHECK_THROWS_WITH_AS(clip_to({x}, x, 1),
                       doctest::Contains("[clip_to] expected the norm of shape"), Error);
  CHECK_THROWS_WITH_AS(may_step(norm, target, 0, norm), doctest::Contains("a loss of dtype f32"),
                       Error);
  CHECK_THROWS_WITH_AS(may_step(loss, norm, 0, norm), doctest::Contains("dtype i64 or f32"), Error);
  CHECK_THROWS_WITH_AS(may_step(loss, target, 0, loss),
                       doctest::Contains("[may_step] expected the norm of dtype f64"), Error);
}

}  // namespace frugal::ops
