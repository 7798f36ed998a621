// Tasks: what the trainer, evaluations and measurements ask of them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "autograd/functions.h"
#include "data/loader.h"
#include "data/memory_dataset.h"
#include "models/zoo/mlp.h"
#include "optim/optimizers.h"
#include "tests/train/task_of.h"
#include "train/evaluate.h"
#include "train/metrics/metric_names.h"
#include "train/tasks/classification.h"
#include "train/tasks/make_task.h"
#include "train/trainer.h"

using namespace frugal;
using namespace frugal::train;

namespace {

constexpr int64_t kRows = 48, kFeatures = 6;

DatasetPtr rows() {
  Tensor inputs = Tensor::empty({kRows, 1, 1, kFeatures}),
         labels = Tensor::empty({kRows}, DType::i64);
  for (int64_t i = 0; i < inputs.numel(); ++i)
    inputs.mut<float>()[i] = normal({3, 0}, static_cast<uint64_t>(i));
  for (int64_t i = 0; i < kRows; ++i) labels.mut<int64_t>()[i] = i % 3;
  return std::make_shared<data::MemoryDataset>(inputs, labels, 3);
}

class SumOfOutputs final : public Metric {
 public:
  void add(const Tensor& output, const Batch& batch) override {
    for (int64_t i = 0; i < output.numel(); ++i) sum_ += static_cast<double>(output.item(i));
    for (int64_t i = 0; i < batch.target.numel(); ++i) classes_ += batch.target.item(i);
  }
  double value(double loss) const override { return sum_ + loss; }
  std::vector<std::pair<std::string, double>> details() const override {
    return {{"outputs", sum_}, {"classes", classes_}};
  }

 private:
  double sum_ = 0, classes_ = 0;
};

// The mean square of the outputs, and a count of the updates.
class Shrink final : public Task {
 public:
  ForwardPass loss(Module& model, Batch& batch, Context& context,
                   const LossOptions& options) const override {
    const Variable output = run(model, batch, context);
    ForwardPass pass;
    pass.loss = mean(mul(output, output));
    pass.terms = {{"square", pass.loss.value()}};
    if (options.keep_output) pass.output = output;
    return pass;
  }
  std::unique_ptr<Metric> metric() const override { return std::make_unique<SumOfOutputs>(); }
  void after_update(Module&, double share) const override {
    ++updates;
    progress = share;
  }
  mutable int64_t updates = 0;
  mutable double progress = 0;
};

models::Mlp network() {
  models::Init init;
  init.rng = Rng(5);
  return {init, {.in_features = kFeatures, .hidden = {8}, .num_classes = 3}};
}

}  // namespace

TEST_CASE("a task of one's own makes the loss, the metric and the update's end") {
  models::Mlp net = network();
  optim::Sgd sgd(net.parameters(), {.momentum = 0});
  data::Loader batches(rows(), {.batch_size = 20}), test(rows(), {.batch_size = 7});
  const auto task = std::make_shared<Shrink>();
  const auto before = evaluate(*task, net, test);
  const auto last = fit(net, sgd, optim::constant_schedule(0.1), batches,
                        {.epochs = 3, .test = &test, .task = task});
  CHECK(task->updates == 9);
  CHECK(task->progress == 1);
  CHECK(last->test.loss < before->loss / 2);
  CHECK(last->test.samples == kRows);
  REQUIRE(last->test.details.size() == 2);
  CHECK(last->test.details[1].second == kRows);  // classes 0, 1 and 2 in turn
  CHECK(*last->test.metric == doctest::Approx(last->test.details[0].second + last->test.loss));
}

TEST_CASE("an evaluation in which no target counts is an error") {
  models::Mlp net = network();
  BatchSpec spec;
  spec.sample = {1, 1, kFeatures};
  spec.classes = 3;
  const auto task = make_task(spec);
  struct Ignored final : Dataset {
    int64_t size() const override { return 6; }
    int64_t classes() const override { return 3; }
    Shape sample_shape() const override { return {1, 1, kFeatures}; }
    int64_t get_into(int64_t index, RngKey, float* out) const override {
      std::fill_n(out, kFeatures, 0.5F);
      return index == counted ? 1 : kIgnored;
    }
    int64_t counted = -1;
  };
  const auto none = std::make_shared<Ignored>(), one = std::make_shared<Ignored>();
  one->counted = 4;
  data::Loader nothing(none, {.batch_size = 4}), something(one, {.batch_size = 4});
  CHECK_THROWS_WITH_AS(evaluate(*task, net, nothing),
                       doctest::Contains("expected targets that count, got none in 6 samples"),
                       Error);
  CHECK(evaluate(*task, net, something)->samples == 1);
}

TEST_CASE("a task's defaults weigh a batch by its samples and cut all its tensors") {
  const Shrink task;
  Batch batch;
  batch.input = Tensor::zeros({4, 2});
  batch.extras = {{"more", Tensor::from<float>({1, 2, 3, 4}, {4})}};
  CHECK(task.weight(batch) == 4);
  const Batch part = task.part(batch, 1, 3);
  CHECK(part.input.size(0) == 2);
  CHECK_FALSE(part.target.defined());
  CHECK(find_tensor(part.extras, "more").to_vector() == std::vector<double>{2, 3});
}

TEST_CASE("a graph is not divided, and its part is the whole") {
  Batch graph;
  graph.input = Tensor::zeros({4, 2});
  graph.target = Tensor::zeros({4}, DType::i64);
  graph.extras = {{"edge_index", Tensor::zeros({2, 0}, DType::i64)}};
  const Task& task = task_of(graph);
  CHECK_FALSE(task.is_divisible(graph));
  CHECK(task.part(graph, 0, 1).input.size(0) == 4);
}

TEST_CASE("predict: probabilities of classes, of each label, and values as they are") {
  const Tensor output = Tensor::from<float>({0, 0, std::log(2.0F)}, {1, 3});
  BatchSpec spec;
  const auto close = [](const Tensor& found, const std::vector<double>& wanted) {
    for (size_t i = 0; i < wanted.size(); ++i)
      CHECK(found.item(static_cast<int64_t>(i)) == doctest::Approx(wanted[i]));
  };
  close(make_task(spec)->predict(output), {0.25, 0.25, 0.5});
  spec.target = BatchSpec::Target::labels;
  close(make_task(spec)->predict(output), {0.5, 0.5, 2.0 / 3});
  spec.target = BatchSpec::Target::values;
  close(make_task(spec)->predict(output), {0, 0, std::log(2.0)});
}

TEST_CASE("a metric that no task has, or that measures other targets, is refused") {
  BatchSpec spec;
  spec.metric = "beauty";
  CHECK_THROWS_WITH_AS(make_task(spec), doctest::Contains("beauty"), Error);
  spec.metric = "r2";
  CHECK_THROWS_WITH_AS(make_task(spec),
                       doctest::Contains("f1, macro_f1, micro_f1, matthews and perplexity, or "
                                         "none, for targets of the kind class_of_sample, got "
                                         "\"r2\""),
                       Error);
}

TEST_CASE("boxes need a network that finds them, and batches that have them") {
  BatchSpec spec;
  spec.target = BatchSpec::Target::boxes;
  spec.sample = {8, 8, 3};
  spec.classes = 2;
  const TaskPtr task = make_task(spec);
  models::Init init;
  models::Mlp other(init, {8 * 8 * 3, {4}, 2, 0.0});
  Batch batch;
  batch.input = Tensor::zeros({1, 8, 8, 3});
  Context context;
  CHECK_THROWS_WITH_AS(forward_pass(*task, other, batch, context, {}),
                       doctest::Contains("[detection] expected "), Error);
  const auto metric = task->metric();
  REQUIRE(metric != nullptr);
  CHECK_THROWS_WITH_AS(metric->add(Tensor::zeros({1, 1, 6}), batch),
                       "[detection] expected batches with the tensor boxes, got none", Error);
}

TEST_CASE("a task of classes that is made without make_task() knows its own metrics alone") {
  BatchSpec spec;
  spec.classes = 3;
  spec.metric = "r2";
  CHECK_THROWS_WITH_AS(static_cast<void>(Classification(spec).metric()),
                       doctest::Contains("[metric] expected one of the metrics f1, "), Error);
}

TEST_CASE("the target decides the task, and any of its metrics may be measured") {
  using Target = BatchSpec::Target;
  for (const MetricName& metric : known_metrics())
    for (const Target target : metric.targets) {
      CAPTURE(std::string(metric.name));
      CAPTURE(target_name(target));
      BatchSpec spec;
      spec.classes = 3;
      spec.target = target;
      spec.metric = metric.name;
      const TaskPtr task =
          make_task(spec, {.samples = [] { return std::unique_ptr<data::BatchSource>(); }});
      CHECK(task->has_accuracy() == metric.has_accuracy());
      REQUIRE(task->metric() != nullptr);
      CHECK(higher_is_better(*task) == metric.higher_is_better);
      // Without a metric, the usual one is measured where nothing is right or wrong.
      spec.metric = "";
      CHECK(make_task(spec)->spec().metric == (has_accuracy(target) ? "" : usual_metric(target)));
    }
  CHECK_FALSE(find_metric("perplexity")->higher_is_better);
  CHECK_FALSE(find_metric("mae")->higher_is_better);
  CHECK(find_metric("beauty") == nullptr);
}

TEST_CASE("metrics of equal outputs, against their formulas") {
  using Target = BatchSpec::Target;
  // Answers 0, 1, 1, 2 where 0, 1, 2, 2 are right, and a row that does not count.
  Batch classes;
  classes.target = Tensor::from<int64_t>({0, 1, 2, 2, kIgnored}, {5});
  const Tensor logits = Tensor::from<float>({2, 0, 0, 0, 2, 0, 0, 2, 0, 0, 0, 2, 2, 0, 0}, {5, 3});
  const auto measured = [](Target target, const char* name, const Tensor& output,
                           const Batch& batch) {
    BatchSpec spec;
    spec.classes = 3;
    spec.target = target;
    spec.metric = name;
    const auto metric = make_task(spec)->metric();
    metric->add(output, batch);
    return metric->value(std::log(5.0));
  };
  for (const Target target : {Target::class_of_sample, Target::class_of_pixel}) {
    CHECK(measured(target, "f1", logits, classes) == doctest::Approx(2.0 / 3));
    CHECK(measured(target, "macro_f1", logits, classes) == doctest::Approx((1 + 4.0 / 3) / 3));
  }
  CHECK(measured(Target::class_of_sample, "micro_f1", logits, classes) == doctest::Approx(0.75));
  CHECK(measured(Target::class_of_sample, "perplexity", logits, classes) == doctest::Approx(5));
  CHECK(measured(Target::class_of_pixel, "miou", logits, classes) == doctest::Approx(2.0 / 3));
  CHECK(measured(Target::class_of_pixel, "dice", logits, classes) ==
        doctest::Approx((1 + 4.0 / 3) / 3));
  Batch values;
  values.target = Tensor::from<float>({1, 2, 3, 6}, {2, 2});
  const Tensor outputs = Tensor::from<float>({1, 4, 3, 2}, {2, 2});
  CHECK(measured(Target::values, "mse", outputs, values) == doctest::Approx(20.0 / 4));
  CHECK(measured(Target::values, "mae", outputs, values) == doctest::Approx(6.0 / 4));
  CHECK(measured(Target::values, "r2", outputs, values) == doctest::Approx((1 - 1.5) / 2));
}
