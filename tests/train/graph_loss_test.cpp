// The loss of a graph's nodes: of those that count, as if all outputs were kept.
#include <doctest/doctest.h>

#include "autograd/functions.h"
#include "autograd/record.h"
#include "core/rng.h"
#include "tests/train/task_of.h"
#include "train/training_step.h"

namespace frugal::train {
namespace {

constexpr int64_t kNodes = 9, kNodeClasses = 4;

// Its outputs are its parameters.
struct Table : Module {
  Variable logits;
  Table() {
    Tensor values = Tensor::empty({kNodes, kNodeClasses});
    for (int64_t i = 0; i < values.numel(); ++i)
      values.mut<float>()[i] = normal({2, 7}, static_cast<uint64_t>(i));
    logits = register_parameter("logits", values);
  }
  Variable forward(Variable, Context&) override { return scale(logits, 1); }
};

Batch batch_of(const Tensor& target, const Tensor& weights = {}) {
  Batch batch;
  batch.input = Tensor::zeros({kNodes, 1});
  batch.target = target;
  batch.extras = {{"edge_index", Tensor::zeros({2, 0}, DType::i64)}};
  if (weights.defined()) batch.extras.emplace_back("node_weight", weights);
  return batch;
}

BatchResult run(Table& model, Batch batch) {
  model.zero_grad();
  Context context;
  const Task& task = task_of(batch);
  return forward_backward(task, model, std::move(batch), context, nullptr, {});
}

double at(const Tensor& tensor, int64_t row, int64_t column) {
  return tensor.item(row * kNodeClasses + column);
}

}  // namespace

TEST_CASE("few nodes that count give the loss and gradient that all outputs would") {
  Table model;
  const Tensor target = Tensor::full({kNodes}, static_cast<double>(kIgnored), DType::i64);
  target.mut<int64_t>()[2] = 3;
  target.mut<int64_t>()[7] = 0;
  for (const bool weighted : {false, true}) {
    Tensor weights;
    if (weighted) weights = Tensor::from<float>({0, 0, 0.25F, 0, 0, 0, 0, 2, 0}, {kNodes});
    const BatchResult result = run(model, batch_of(target, weights));
    const Tensor gradient = model.logits.grad();
    model.zero_grad();
    CrossEntropyOptions options;
    options.sum = weighted;
    const Variable whole = cross_entropy(scale(model.logits, 1), target, options, weights);
    backward(whole);
    CHECK(result.counted == 2);
    CHECK(result.samples == kNodes);
    CHECK(result.loss == doctest::Approx(whole.value().item()));
    for (int64_t i = 0; i < gradient.numel(); ++i)
      CHECK(gradient.item(i) == doctest::Approx(model.logits.grad().item(i)).epsilon(1e-6));
  }
  const Tensor none = Tensor::full({kNodes}, static_cast<double>(kIgnored), DType::i64);
  const BatchResult result = run(model, batch_of(none));
  CHECK(result.loss == 0);
  CHECK(result.counted == 0);
  for (const double g : model.logits.grad().to_vector()) CHECK(g == 0);
}

TEST_CASE("several labels: the mean of the answers' losses, or the nodes' weighted sum") {
  Table model;
  Tensor target = Tensor::full({kNodes, kNodeClasses}, static_cast<double>(kIgnored));
  for (const int64_t row : {1, 8})
    for (int64_t c = 0; c < kNodeClasses; ++c)
      target.mut<float>()[row * kNodeClasses + c] = c == row % kNodeClasses ? 1.0F : 0.0F;
  const Tensor x = model.logits.value();
  for (const bool weighted : {false, true}) {
    Tensor weights;
    if (weighted) weights = Tensor::from<float>({0, 0.5F, 0, 0, 0, 0, 0, 0, 3}, {kNodes});
    const BatchResult result = run(model, batch_of(target, weights));
    double loss = 0;
    int64_t right = 0;
    for (const int64_t row : {1, 8})
      for (int64_t c = 0; c < kNodeClasses; ++c) {
        const double t = at(target, row, c), v = at(x, row, c);
        const double w = (weighted ? weights.item(row) : 0.5) / kNodeClasses;
        loss += w * (std::log1p(std::exp(v)) - t * v);
        if ((v > 0) == (t > 0.5)) ++right;
        CHECK(at(model.logits.grad(), row, c) ==
              doctest::Approx(w * (1 / (1 + std::exp(-v)) - t)).epsilon(1e-5));
      }
    CHECK(result.loss == doctest::Approx(loss));
    CHECK(result.counted == 2 * kNodeClasses);
    CHECK(result.correct == right);
    for (int64_t c = 0; c < kNodeClasses; ++c) CHECK(at(model.logits.grad(), 0, c) == 0);
  }
  const Tensor none = Tensor::full({kNodes, kNodeClasses}, static_cast<double>(kIgnored));
  const BatchResult result = run(model, batch_of(none));
  CHECK(result.loss == 0);
  CHECK(result.counted == 0);
  for (const double g : model.logits.grad().to_vector()) CHECK(g == 0);
}

}  // namespace frugal::train
