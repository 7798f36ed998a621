// Weights of classes in the losses of all kinds of classes, against plain loops.
#include <doctest/doctest.h>

#include <cmath>

#include "autograd/functions.h"
#include "core/rng.h"
#include "train/tasks/make_task.h"
#include "train/training_step.h"

using namespace frugal;
using namespace frugal::train;

namespace {

constexpr int64_t kTargets = 7, kLabels = 3;
const std::vector<double> kWeights = {1, 0.25, 4};

// Its outputs are its parameter.
struct Fixed final : Module {
  Variable logits;
  explicit Fixed(int64_t outputs = kLabels) {
    Tensor values = Tensor::empty({kTargets, outputs});
    for (int64_t i = 0; i < values.numel(); ++i)
      values.mut<float>()[i] = normal({3, 8}, static_cast<uint64_t>(i));
    logits = register_parameter("logits", values);
  }
  Variable forward(Variable, Context&) override { return scale(logits, 1); }
};

Batch batch_of(BatchSpec::Kind kind) {
  Batch batch;
  batch.input = Tensor::zeros({kTargets, 2});
  batch.target = Tensor::empty({kTargets}, DType::i64);
  for (int64_t i = 0; i < kTargets; ++i)
    batch.target.mut<int64_t>()[i] = i == 2 ? kIgnored : i % kLabels;
  if (kind == BatchSpec::Kind::graph)
    batch.extras = {{"edge_index", Tensor::zeros({2, 0}, DType::i64)}};
  return batch;
}

double log_p(const Tensor& logits, int64_t row, int64_t wanted) {
  const int64_t classes = logits.size(1);
  double total = 0;
  for (int64_t c = 0; c < classes; ++c) total += std::exp(logits.item(row * classes + c));
  return logits.item(row * classes + wanted) - std::log(total);
}

// The weighted mean over the rows that count.
double wanted_loss(const Tensor& logits, const Batch& batch, const std::vector<double>& weights) {
  double sum = 0, all = 0;
  for (int64_t i = 0; i < kTargets; ++i) {
    const int64_t target = batch.target.data<int64_t>()[i];
    if (target == kIgnored) continue;
    const double weight = weights[static_cast<size_t>(target)];
    sum -= weight * log_p(logits, i, target);
    all += weight;
  }
  return sum / all;
}

double loss_of(const Task& task, Module& model, Batch batch, bool training) {
  Context context;
  context.training = training;
  Batch placed = task.place(std::move(batch), model);
  return task.loss(model, placed, context, {}).loss.value().item();
}

}  // namespace

TEST_CASE("samples, rows, texts and nodes: a weighted mean in training, a plain one else") {
  Fixed model;
  for (const auto kind : {BatchSpec::Kind::images, BatchSpec::Kind::rows,
                          BatchSpec::Kind::sequences, BatchSpec::Kind::graph}) {
    CAPTURE(static_cast<int>(kind));
    BatchSpec spec;
    spec.kind = kind;
    spec.classes = kLabels;
    const TaskPtr task = make_task(spec, {.class_weights = kWeights});
    const Batch batch = batch_of(kind);
    const Tensor& logits = model.logits.value();
    CHECK(loss_of(*task, model, batch, true) ==
          doctest::Approx(wanted_loss(logits, batch, kWeights)));
    CHECK(loss_of(*task, model, batch, false) ==
          doctest::Approx(wanted_loss(logits, batch, {1, 1, 1})));
    // Targets 0, 1, -, 0, 1, 2, 0.
    CHECK(task->weight(batch) == doctest::Approx(3 * 1 + 2 * 0.25 + 4));
    CHECK(make_task(spec)->weight(batch) == 6);
  }
}

TEST_CASE("outputs beyond the classes have the weight 1") {
  Fixed model(5);
  BatchSpec spec;
  spec.classes = kLabels;
  const TaskPtr task = make_task(spec, {.class_weights = kWeights});
  const Batch batch = batch_of(spec.kind);
  CHECK(loss_of(*task, model, batch, true) ==
        doctest::Approx(wanted_loss(model.logits.value(), batch, kWeights)));
}

TEST_CASE("several labels: each label's loss has its weight, and the mean is over all") {
  Fixed model;
  BatchSpec spec;
  spec.kind = BatchSpec::Kind::rows;
  spec.classes = kLabels;
  spec.target = BatchSpec::Target::labels;
  const TaskPtr task = make_task(spec, {.class_weights = kWeights});
  Batch batch;
  batch.input = Tensor::zeros({kTargets, 2});
  batch.target = Tensor::zeros({kTargets, kLabels});
  double weighted = 0, plain = 0;
  for (int64_t i = 0; i < kTargets * kLabels; ++i) {
    const bool yes = i % 4 == 1;
    if (yes) batch.target.mut<float>()[i] = 1;
    const double x = model.logits.value().item(i);
    const double loss = std::log1p(std::exp(yes ? -x : x));
    weighted += kWeights[static_cast<size_t>(i % kLabels)] * loss;
    plain += loss;
  }
  CHECK(loss_of(*task, model, batch, true) == doctest::Approx(weighted / (kTargets * kLabels)));
  CHECK(loss_of(*task, model, batch, false) == doctest::Approx(plain / (kTargets * kLabels)));
}

TEST_CASE(
    "several labels: answers that are not known are left out, whatever is known of their row") {
  Fixed model;
  BatchSpec spec;
  spec.kind = BatchSpec::Kind::rows;
  spec.classes = kLabels;
  spec.target = BatchSpec::Target::labels;
  const auto counts = [](int64_t i) { return i / kLabels != 1 && i % 5 != 0; };  // row 1: none
  Batch batch;
  batch.input = Tensor::zeros({kTargets, 2});
  batch.target = Tensor::zeros({kTargets, kLabels});
  const Tensor rows = Tensor::empty({kTargets});  // weights, as samplers of graphs give them
  double plain = 0, weighted = 0, by_row = 0, known = 0, right = 0;
  for (int64_t row = 0; row < kTargets; ++row) {
    const float of_row = rows.mut<float>()[row] = 0.1f * static_cast<float>(row + 1);
    double sum = 0, here = 0;
    for (int64_t i = row * kLabels; i < (row + 1) * kLabels; ++i) {
      batch.target.mut<float>()[i] = !counts(i) ? float(kIgnored) : i % 4 == 1 ? 1.0f : 0.0f;
      if (!counts(i)) continue;
      const double x = model.logits.value().item(i);
      const double loss = std::log1p(std::exp(i % 4 == 1 ? -x : x));
      sum += loss, ++here;
      weighted += kWeights[static_cast<size_t>(i % kLabels)] * loss;
      right += (x > 0) == (i % 4 == 1) ? 1 : 0;
    }
    plain += sum, known += here;
    if (here > 0) by_row += double(of_row) * sum / here;
  }
  REQUIRE(known < (kTargets - 1) * kLabels);
  const TaskPtr task = make_task(spec, {.class_weights = kWeights});
  CHECK(task->weight(batch) == known);
  CHECK(loss_of(*task, model, batch, true) == doctest::Approx(weighted / known));
  CHECK(loss_of(*task, model, batch, false) == doctest::Approx(plain / known));
  Batch sampled = batch;
  sampled.extras.emplace_back("node_weight", rows);
  CHECK(loss_of(*make_task(spec, {}), model, sampled, true) == doctest::Approx(by_row));
  Context context;
  Batch placed = task->place(batch, model);
  const Counts counted = task->count(task->loss(model, placed, context, {}));
  CHECK(double(counted.counted) == known);
  CHECK(double(counted.correct) == right);
}

TEST_CASE("weights that no classes have are refused") {
  BatchSpec spec;
  spec.classes = kLabels;
  const auto make = [&](const std::vector<double>& weights) {
    return make_task(spec, {.class_weights = weights});
  };
  CHECK_THROWS_WITH_AS(make({1, 2}), doctest::Contains("3 classes, got 2"), Error);
  // In f32, in which they are applied, these are 0 or infinite.
  for (const double wrong : {0.0, 1e-300, 1e300, HUGE_VAL, -1.0, double(NAN)})
    CHECK_THROWS_WITH_AS(make({1, wrong, 1}),
                         doctest::Contains("weights of classes from 1e-30 to 1e+30, got "), Error);
  CHECK_THROWS_WITH_AS(make({1, 1, 1e300}), doctest::Contains("got 1e+300 for class 2"), Error);
  spec.target = BatchSpec::Target::values;
  CHECK_THROWS_WITH_AS(make(kWeights), doctest::Contains("data of classes"), Error);
}

TEST_CASE("targets and rows that weights of classes do not go with are refused") {
  Fixed model;
  BatchSpec spec;
  spec.classes = kLabels;
  const TaskPtr task = make_task(spec, {.class_weights = kWeights});
  for (const int64_t wrong : {int64_t{3}, int64_t{-1}}) {
    Batch batch = batch_of(spec.kind);
    batch.target.mut<int64_t>()[4] = wrong;
    CHECK_THROWS_WITH_AS(
        static_cast<void>(task->weight(batch)),
        doctest::Contains(
            fmt::format("[task] expected targets in [0, 3) or the ignored -100, got {} in row 4",
                        wrong)
                .c_str()),
        Error);
  }
  const char* const weighted = "rows without weights of their own beside weights of classes";
  Batch nodes = batch_of(BatchSpec::Kind::graph);
  nodes.extras.emplace_back("node_weight", Tensor::full({kTargets}, 1));
  spec.kind = BatchSpec::Kind::graph;
  CHECK_THROWS_WITH_AS(loss_of(*make_task(spec, {.class_weights = kWeights}), model, nodes, true),
                       doctest::Contains(weighted), Error);
  spec.target = BatchSpec::Target::labels;
  nodes.target = Tensor::zeros({kTargets, kLabels});
  CHECK_THROWS_WITH_AS(loss_of(*make_task(spec, {.class_weights = kWeights}), model, nodes, true),
                       doctest::Contains(weighted), Error);
}
