// resized_cross_entropy beside the interpolation and the loss that it stands for.
#include <doctest/doctest.h>

#include <cmath>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/segmentation_functions.h"
#include "core/memory.h"
#include "core/rng.h"
#include "ops/dense/reduce.h"

namespace frugal {
namespace {

Variable random_logits(const Shape& shape, DType dtype) {
  const Tensor x = Tensor::empty(shape, dtype);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float value = normal({4, 2}, static_cast<uint64_t>(i));
    if (dtype == DType::f64)
      x.mut<double>()[i] = static_cast<double>(value);
    else
      x.mut<float>()[i] = value;
  }
  return Variable(x, true);
}

Tensor targets(const Shape& shape, int64_t classes) {
  const Tensor t = Tensor::empty(shape, DType::i64);
  for (int64_t i = 0; i < t.numel(); ++i) t.mut<int64_t>()[i] = i % 7 == 2 ? -100 : 5 * i % classes;
  return t;
}

}  // namespace

TEST_CASE("resized_cross_entropy: loss, classes and gradient are those of its two parts") {
  const Tensor target = targets({3, 9, 10}, 4);
  const Tensor weights = Tensor::from<double>({0.5, 2, 0, 1}, {4});
  for (const bool weighted : {false, true})
    for (const int64_t at_once : {1, 2, 5}) {
      const Variable x = random_logits({3, 3, 4, 4}, DType::f64),
                     y = random_logits({3, 3, 4, 4}, DType::f64);
      CrossEntropyOptions options;
      options.label_smoothing = weighted ? 0 : 0.1;
      const ResizedCrossEntropy got =
          resized_cross_entropy(x, target, options, at_once, weighted ? weights : Tensor());
      const Variable logits = interpolate(y, 9, 10, {Interpolation::bilinear, false});
      const Variable expected = weighted ? weighted_cross_entropy(logits, target, weights, options)
                                         : cross_entropy(logits, target, options);
      CHECK(got.top.to_vector() == ops::argmax(logits.value(), -1).to_vector());
      CHECK(got.loss.value().item() == doctest::Approx(expected.value().item()).epsilon(1e-12));
      backward(got.loss);
      backward(expected);
      for (int64_t i = 0; i < x.value().numel(); ++i)
        CHECK(x.grad().item(i) == doctest::Approx(y.grad().item(i)).epsilon(1e-10));
    }
}

TEST_CASE("resized_cross_entropy: the logits of all pixels are never in memory") {
  const int64_t images = 8, side = 64, classes = 16;
  const Variable x = random_logits({images, 4, 4, classes}, DType::f32);
  const Tensor target = targets({images, side, side}, classes);
  allocator(kCpu).reset_peak();
  const int64_t before = allocator(kCpu).report().live_total;
  const ResizedCrossEntropy got = resized_cross_entropy(x, target, {}, 1);
  const int64_t image = side * side * classes * 4;
  CHECK(allocator(kCpu).report().peak_total - before < 4 * image);
}

TEST_CASE("resized_cross_entropy: without pixels that count the gradient is 0") {
  const Variable x = random_logits({1, 2, 2, 3}, DType::f32);
  const ResizedCrossEntropy got =
      resized_cross_entropy(x, Tensor::full({1, 4, 4}, -100, DType::i64), {}, 1);
  CHECK(std::isnan(got.loss.value().item()));
  backward(got.loss);
  CHECK(x.grad().to_vector() == std::vector<double>(12, 0.0));
}

}  // namespace frugal
