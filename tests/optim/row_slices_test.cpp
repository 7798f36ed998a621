#include "optim/row_slices.h"

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/transformer_functions.h"
#include "core/memory.h"
#include "optim/clip.h"
#include "optim/optimizers.h"
#include "tests/optim/samples.h"

namespace frugal::optim {
namespace {

constexpr int64_t kRows = 6000, kWidth = 96;  // more than two slices

Tensor some_ids(int64_t step) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 40; ++i) ids.push_back((i * i * 37 + 1000 * step) % kRows);
  return Tensor::from<int64_t>(ids, {40});
}

// The table after three steps, and the most bytes of gradients in a step.
struct Trained {
  std::vector<double> table;
  int64_t gradient_bytes;
};
template <class Make>
Trained train(const Make& make, bool sparse, bool clip) {
  Variable table = Variable::parameter(normals({kRows, kWidth}, 1, DType::f32));
  const auto optimizer = make(table);
  allocator(kCpu).reset_peak();
  for (int64_t step = 0; step < 3; ++step) {
    table.zero_grad();
    const Variable y = embedding(some_ids(step), table);
    backward(sum(mul(y, Variable(normals(y.shape(), 5, DType::f32)))));
    REQUIRE(has_sparse_grad(table));
    if (!sparse) table.set_grad(Tensor(table.grad()));
    REQUIRE(has_sparse_grad(table) == sparse);
    if (clip) {
      clip_grad_value({table}, 0.5);
      CHECK(grad_norm({table}) > 1);
    }
    optimizer->step(0.1);
    CHECK(has_sparse_grad(table) == sparse);
  }
  return {table.value().to_vector(),
          allocator(kCpu).report().peak[static_cast<size_t>(Category::gradient)]};
}

template <class Make>
void check_equal(const Make& make, bool clip = false) {
  const Trained rows = train(make, true, clip), whole = train(make, false, clip);
  CHECK(rows.table == whole.table);
  CHECK(whole.gradient_bytes >= kRows * kWidth * 4);
  CHECK(rows.gradient_bytes < kRows * kWidth * 4 / 10);
}

}  // namespace

TEST_CASE("SGD by sparse rows gives the bits of whole gradients") {
  for (const double momentum : {0.0, 0.9})
    for (const double decay : {0.0, 0.01})
      check_equal([=](const Variable& p) {
        return std::make_unique<Sgd>(group(p, decay), SgdOptions{momentum, momentum > 0});
      });
}

TEST_CASE("Adam by sparse rows gives the bits of whole gradients") {
  for (const bool decoupled : {false, true})
    check_equal([=](const Variable& p) {
      return std::make_unique<Adam>(group(p, 0.01), AdamOptions{0.9, 0.999, 1e-8, decoupled});
    });
}

TEST_CASE("clipping by value and norms leave sparse rows sparse") {
  check_equal(
      [](const Variable& p) {
        return std::make_unique<Sgd>(group(p), SgdOptions{0, false});
      },
      true);
  Variable table = Variable::parameter(normals({kRows, kWidth}, 1, DType::f32));
  backward(scale(sum(embedding(some_ids(0), table)), 3));
  const double norm = clip_grad_norm({table}, 1);
  CHECK(has_sparse_grad(table));
  CHECK(grad_norm({table}) == doctest::Approx(1).epsilon(1e-5));
  double squares = 0;
  for (const double g : table.grad().to_vector()) squares += g * g;
  CHECK(std::sqrt(squares) == doctest::Approx(1).epsilon(1e-5));
  CHECK(norm > 3);
}

}  // namespace frugal::optim
