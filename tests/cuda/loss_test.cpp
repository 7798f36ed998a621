// Softmax and cross-entropy on CUDA beside the CPU's, where the op table does not reach: rows of
// every width, several blocks, values that are no numbers, and targets out of range.
#include "autograd/engine.h"
#include "autograd/functions.h"
#include "ops/dense/softmax.h"
#include "ops/loss/cross_entropy.h"
#include "tests/cuda/compare.h"

namespace frugal::ops {
namespace {

using gpu::here, gpu::near, gpu::rounded, gpu::there, gpu::tolerance;

struct Size {
  int64_t rows, width;
};
const std::vector<Size> kSizes{{5, 1},    {5000, 3}, {37, 8},   {21, 300}, {9, 1024},
                               {4, 1025}, {4, 1032}, {3, 4104}, {3, 5001}};

Tensor targets(const Size& size, int64_t ignored) {
  std::vector<int64_t> at;
  for (int64_t i = 0; i < size.rows; ++i) at.push_back(i % 5 == 3 ? ignored : i * 7 % size.width);
  return Tensor::from<int64_t>(at, {size.rows});
}

}  // namespace

TEST_CASE("softmax on CUDA: rows of every width") {
  if (!gpu::available()) return;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Size& size : kSizes) {
      CAPTURE(size.width);
      const Shape shape{size.rows, size.width};
      const Tensor x = rounded(shape, 1, 3), dy = rounded(shape, 2);
      const Tensor y = softmax(x), z = log_softmax(x), u = there(x, dtype), g = there(dy, dtype);
      CHECK(near(softmax(u), y, tolerance(dtype)));
      CHECK(near(log_softmax(u), z, tolerance(dtype)));
      const Tensor v = there(y, dtype), w = there(z, dtype);
      CHECK(near(softmax_backward(g, v), softmax_backward(dy, cast(here(v), DType::f32)),
                 tolerance(dtype)));
      CHECK(near(log_softmax_backward(g, w), log_softmax_backward(dy, cast(here(w), DType::f32)),
                 tolerance(dtype)));
    }
}

TEST_CASE("softmax on CUDA: no numbers, and infinities") {
  if (!gpu::available()) return;
  const auto inf = static_cast<float>(kInf), nan = static_cast<float>(kNan);
  const Tensor x =
      Tensor::from<float>({1, nan, 2, 1, inf, 2, -inf, -inf, -inf, -inf, 1, 2}, {4, 3});
  CHECK(near(softmax(there(x)), softmax(x), 1e-6));
  CHECK(near(log_softmax(there(x)), log_softmax(x), 1e-6));
}

TEST_CASE("cross-entropy on CUDA: rows of every width, smoothed, weighted, ignored") {
  if (!gpu::available()) return;
  CrossEntropyOptions smooth, sum;
  smooth.label_smoothing = 0.1;
  sum.sum = true;
  sum.ignore_index = 0;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Size& size : kSizes)
      for (const CrossEntropyOptions& options : {CrossEntropyOptions{}, smooth, sum}) {
        CAPTURE(size.width);
        const Shape shape{size.rows, size.width};
        const Tensor x = rounded(shape, 1, 3), at = targets(size, options.ignore_index);
        Tensor weights;
        if (options.sum) {
          weights = Tensor::full({size.rows}, 0.5);
          weights.mut<float>()[size.rows / 2] = 0;
        }
        const Tensor u = there(x, dtype), t = there(at), w = there(weights);
        const CrossEntropyResult e = cross_entropy(x, at, options, weights);
        const CrossEntropyResult got = cross_entropy(u, t, options, w);
        CHECK(got.loss.dtype() == DType::f32);
        CHECK(near(got.loss, e.loss, 1e-6));
        CHECK(near(got.lse, e.lse, 1e-6));
        CHECK(got.correct.item() == e.correct.item());
        CHECK(got.counted.item() == e.counted.item());
        const Tensor other = targets(size, 0);
        CHECK(count_correct(u, there(other)) == count_correct(x, other));
        const Tensor p = cross_entropy_probabilities(x, e.lse);
        const Tensor q = cross_entropy_probabilities(u, got.lse);
        CHECK(near(q, p, tolerance(dtype)));
        const Tensor copy = there(x, dtype);
        const Tensor in_place = cross_entropy_probabilities(copy, got.lse, true);
        CHECK(in_place.storage() == copy.storage());
        CHECK(same_bits(here(in_place), here(q)));
        const Tensor dy = Tensor::full({}, 3);
        const Tensor dx = cross_entropy_backward(dy, x, at, e.lse, options, weights);
        const Tensor dv = cross_entropy_backward(there(dy), u, t, got.lse, options, w);
        CHECK(near(dv, dx, tolerance(dtype)));
        CHECK(near(cross_entropy_backward(there(dy), there(p, dtype), t, {}, options, w), dx,
                   tolerance(dtype)));
        const Tensor over = cross_entropy_backward(there(dy), u, t, got.lse, options, w, true);
        CHECK(over.storage() == u.storage());
        CHECK(same_bits(here(over), here(dv)));
      }
}

TEST_CASE("cross-entropy on CUDA: weights of classes, with smoothing") {
  if (!gpu::available()) return;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Size& size : kSizes)
      for (const double smoothing : {0.0, 0.2}) {
        CAPTURE(size.width);
        const CrossEntropyOptions options{smoothing, 0};
        const Tensor x = rounded({size.rows, size.width}, 1, 3), at = targets(size, 0);
        const Tensor v = Tensor::empty({size.width});
        for (int64_t c = 0; c < size.width; ++c)
          v.mut<float>()[c] = 0.25f * static_cast<float>(c % 5);
        const Tensor u = there(x, dtype), t = there(at);
        const EntropyWeights weights({}, v), there_weights({}, there(v));
        const CrossEntropyResult e = cross_entropy(x, at, options, weights);
        const CrossEntropyResult got = cross_entropy(u, t, options, there_weights);
        CHECK(near(got.loss, e.loss, 1e-6));
        const Tensor dy = Tensor::full({}, 3);
        const Tensor dx = cross_entropy_backward(dy, x, at, e.lse, options, weights);
        CHECK(near(cross_entropy_backward(there(dy), u, t, got.lse, options, there_weights), dx,
                   tolerance(dtype)));
      }
}

TEST_CASE("cross-entropy on CUDA: the first of equals, no numbers, targets out of range") {
  if (!gpu::available()) return;
  const auto nan = static_cast<float>(kNan);
  const Tensor x = Tensor::from<float>({1, 2, 2, nan, nan, nan, 3, nan, 4}, {3, 3});
  const Tensor at = Tensor::from<int64_t>({1, 0, 2}, {3});
  CHECK(cross_entropy(there(x), there(at)).correct.item() == 3);
  CHECK(cross_entropy(x, at).correct.item() == 3);
  const Tensor fine = normals({2, 3}, 1), wrong = Tensor::from<int64_t>({1, 3}, {2});
  const CrossEntropyResult result = cross_entropy(there(fine), there(wrong));
  CHECK(std::isnan(result.loss.item()));
  const Tensor dx =
      cross_entropy_backward(there(Tensor::full({}, 1)), there(fine), there(wrong), result.lse);
  CHECK_FALSE(std::isnan(dx.item(0)));
  CHECK(std::isnan(dx.item(3)));
  const CrossEntropyResult none =
      cross_entropy(there(Tensor::zeros({0, 3})), there(Tensor::zeros({0}, DType::i64)));
  CHECK(std::isnan(none.loss.item()));
}

namespace {

struct Head {
  double loss;
  Tensor top, dx, dweight, dbias;
};

// The loss of 12 rows of a head, `at_once` rows at a time, with its gradients.
Head head_of(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t at_once) {
  Variable rows(x, true), w(weight, true), b;
  if (bias.defined()) b = Variable(bias, true);
  std::vector<int64_t> at;
  for (int64_t i = 0; i < 12; ++i) at.push_back(i == 5 ? -100 : i * 5 % weight.size(0));
  const Tensor target = to_device(Tensor::from<int64_t>(at, {12}), x.device());
  const LinearCrossEntropy judged = linear_cross_entropy(rows, w, b, target, {}, at_once);
  backward(judged.loss);
  return {judged.loss.value().item(), judged.top, rows.grad(), w.grad(),
          b.defined() ? b.grad() : Tensor()};
}

// Kernels that one more part of a head takes.
double launches_of_a_part(const Tensor& x, const Tensor& weight) {
  const int64_t before = emulator::launches();
  head_of(x, weight, {}, 6);  // two parts
  const int64_t between = emulator::launches();
  head_of(x, weight, {}, 2);  // six
  return static_cast<double>(emulator::launches() - between - (between - before)) / 4;
}

}  // namespace

TEST_CASE("a head of bf16 whose classes are no multiple of 8, in parts") {
  if (!gpu::available()) return;
  for (const int64_t classes : {13, 16, 50})
    for (const bool biased : {false, true})
      for (const int64_t at_once : {12, 5}) {
        CAPTURE(classes);
        CAPTURE(biased);
        CAPTURE(at_once);
        const Tensor x = rounded({12, 16}, 1), w = rounded({classes, 16}, 2, 0.5);
        const Tensor b = biased ? rounded({classes}, 3) : Tensor();
        const Head expected = head_of(x, w, b, at_once);
        const Head got = head_of(there(x, DType::bf16), there(w), there(b), at_once);
        CHECK(got.loss == doctest::Approx(expected.loss).epsilon(0.02));
        CHECK(got.dx.dtype() == DType::bf16);
        CHECK(near(got.dx, expected.dx, 0.02));
        REQUIRE(got.dweight.shape() == expected.dweight.shape());
        CHECK(got.dweight.dtype() == DType::f32);
        CHECK(near(got.dweight, expected.dweight, 0.02));
        if (biased) {
          REQUIRE(got.dbias.shape() == expected.dbias.shape());
          CHECK(near(got.dbias, expected.dbias, 0.02));
        }
        CHECK(got.top.to_vector() == expected.top.to_vector());
      }
}

TEST_CASE("parts of a head of bf16 do not cast its weight again") {
  if (!gpu::available() || !gpu::emulated()) return;
  const Tensor x = rounded({12, 16}, 1), w = rounded({24, 16}, 2);
  // In f32 there is nothing to cast.
  CHECK(launches_of_a_part(there(x, DType::bf16), there(w)) ==
        launches_of_a_part(there(x), there(w)));
}

}  // namespace frugal::ops
