// The losses of self-supervised learning against their formulas, term by term.
#include "autograd/contrastive_functions.h"

#include <doctest/doctest.h>

#include <cmath>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/record.h"

using namespace frugal;

namespace {

using Lists = std::vector<std::vector<double>>;

Tensor drawn(const Shape& shape, uint64_t seed) {
  return Tensor::randn(shape, {seed, 0}, DType::f64);
}

Lists rows_of(const Tensor& x) {
  const std::vector<double> all = x.to_vector();
  Lists rows;
  const auto width = static_cast<std::ptrdiff_t>(x.size(1));
  for (auto at = all.begin(); at != all.end(); at += width) rows.emplace_back(at, at + width);
  return rows;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
double cosine(const std::vector<double>& a, const std::vector<double>& b) {
  return dot(a, b) / std::sqrt(dot(a, a) * dot(b, b));
}

}  // namespace

TEST_CASE("negative_cosine is the mean of the rows' cosines, negated") {
  const Tensor x = drawn({4, 5}, 1), target = drawn({4, 5}, 2);
  const Lists a = rows_of(x), b = rows_of(target);
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += cosine(a[i], b[i]);
  CHECK(negative_cosine(Variable(x), target).value().item() ==
        doctest::Approx(-sum / 4).epsilon(1e-10));
  CHECK(negative_cosine(Variable(x), x).value().item() == doctest::Approx(-1));
}

TEST_CASE("negative_cosine: the gradient is that of the loss written with other functions") {
  const Tensor target = drawn({3, 7}, 4);
  Variable x(drawn({3, 7}, 3), true), y(drawn({3, 7}, 3), true);
  backward(negative_cosine(x, target));
  const Variable t = Variable::constant(unit_rows(target));
  const Variable norms = sqrt(sum(mul(y, y), {1}, true));
  backward(scale(sum(mul(div(y, norms), t)), -1.0 / 3));
  const std::vector<double> got = x.grad().to_vector(), wanted = y.grad().to_vector();
  for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == doctest::Approx(wanted[i]).epsilon(1e-8));
}

TEST_CASE("a row of zeros has cosine 0 and no gradient") {
  Variable x(Tensor::zeros({1, 3}), true);
  const Variable loss = negative_cosine(x, Tensor::ones({1, 3}));
  CHECK(loss.value().item() == 0);
  backward(loss);
  for (const double g : x.grad().to_vector()) CHECK(g == 0);
  Variable rows(Tensor::from(std::vector<float>{0, 0, 3, 4}, {2, 2}), true);
  backward(
      info_nce(rows, Tensor::full({2, 2}, 1), Tensor::from(std::vector<float>{1, -1}, {1, 2}), 1)
          .loss);
  CHECK(rows.grad().item(0) == 0);
  CHECK(rows.grad().item(1) == 0);
  CHECK(rows.grad().item(2) != 0);
  CHECK(unit_rows(Tensor::zeros({1, 3})).to_vector() == std::vector<double>(3, 0.0));
}

TEST_CASE("info_nce is the cross-entropy of a row's own key among those of the queue") {
  const Tensor x = drawn({5, 4}, 5), keys = unit_rows(drawn({5, 4}, 6)),
               queue = unit_rows(drawn({6, 4}, 7));
  const double t = 0.2;
  const Lists a = rows_of(x), k = rows_of(keys), q = rows_of(queue);
  double sum = 0;
  std::vector<double> margins;
  for (size_t i = 0; i < a.size(); ++i) {
    const double length = std::sqrt(dot(a[i], a[i])), own = dot(a[i], k[i]) / length;
    double all = std::exp(own / t), best = -2;
    for (const auto& other : q) {
      all += std::exp(dot(a[i], other) / length / t);
      best = std::max(best, dot(a[i], other) / length);
    }
    sum -= std::log(std::exp(own / t) / all);
    margins.push_back(own - best);
  }
  for (const int64_t at_once : {1, 2, 5, 100}) {
    CAPTURE(at_once);
    const InfoNce got = info_nce(Variable(x), keys, queue, t, at_once);
    CHECK(got.loss.value().item() == doctest::Approx(sum / 5).epsilon(1e-9));
    for (size_t i = 0; i < margins.size(); ++i)
      CHECK(got.margin.to_vector()[i] == doctest::Approx(margins[i]).epsilon(1e-8));
  }
}

TEST_CASE(
    "info_nce: the gradient is that of cross_entropy over the products, and of one in parts") {
  const Tensor keys = unit_rows(drawn({5, 4}, 6)), queue = unit_rows(drawn({6, 4}, 7));
  Variable x(drawn({5, 4}, 5), true), y(drawn({5, 4}, 5), true), z(drawn({5, 4}, 5), true);
  backward(info_nce(x, keys, queue, 0.2).loss);
  backward(info_nce(z, keys, queue, 0.2, 2).loss);
  const Variable unit = div(y, sqrt(sum(mul(y, y), {1}, true)));
  const Variable own = sum(mul(unit, Variable::constant(keys)), {1}, true);
  const Variable others = linear(unit, Variable::constant(queue));
  backward(cross_entropy(scale(concat({own, others}, 1), 5), Tensor::zeros({5}, DType::i64)));
  const std::vector<double> wanted = y.grad().to_vector();
  for (size_t i = 0; i < wanted.size(); ++i) {
    CHECK(x.grad().to_vector()[i] == doctest::Approx(wanted[i]).epsilon(1e-7));
    CHECK(z.grad().to_vector()[i] == doctest::Approx(wanted[i]).epsilon(1e-7));
  }
}

TEST_CASE("info_nce keeps no products and not the queue, which may be written before backward") {
  const Shape rows{256, 128};
  const auto on_meta = [](const Shape& shape) { return Tensor::empty(shape, DType::f32, kMeta); };
  Variable x(on_meta(rows), true);
  const Tensor keys = on_meta(rows), queue = on_meta({65536, 128});
  const int64_t before = allocator(kMeta).report().live_total;
  allocator(kMeta).reset_peak();
  const InfoNce result = info_nce(x, keys, queue, 0.2, 64);
  // The gradient, the margins, the loss and the node.
  CHECK(allocator(kMeta).report().live_total - before < 4 * rows.numel() + 4096);
  // Beside that the products of 64 rows, and tensors of the rows' size.
  CHECK(allocator(kMeta).report().peak_total - before < 4 * (64 * 65536 + 12 * rows.numel()));

  Tensor written = unit_rows(drawn({6, 4}, 7));
  const Tensor own = unit_rows(drawn({5, 4}, 6));
  Variable y(drawn({5, 4}, 5), true), z(drawn({5, 4}, 5), true);
  backward(info_nce(z, own, written, 0.2).loss);
  const Variable loss = info_nce(y, own, written, 0.2).loss;
  for (int64_t i = 0; i < written.numel(); ++i) written.mut<double>()[i] = -3;
  written.bump_version();
  CHECK_NOTHROW(backward(loss));
  CHECK(y.grad().to_vector() == z.grad().to_vector());
}

namespace {

class CountsQuestions final : public SavePolicy {
 public:
  Decision decide(const SaveInfo&, const Tensor&) override {
    ++questions;
    return {};
  }
  int questions = 0;
};

}  // namespace

TEST_CASE("no policy may make the gradient of a contrastive loss lossy") {
  CountsQuestions policy;
  const PolicyScope scope(&policy);
  const Tensor target = drawn({3, 7}, 4);
  const Variable x(drawn({3, 7}, 3), true);
  backward(negative_cosine(x, target));
  backward(info_nce(x, unit_rows(target), unit_rows(drawn({5, 7}, 5)), 0.2).loss);
  CHECK(policy.questions == 0);
}
