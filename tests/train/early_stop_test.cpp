#include "train/early_stop.h"

#include <doctest/doctest.h>

#include <cmath>

#include "autograd/functions.h"
#include "data/loader.h"
#include "data/memory_dataset.h"
#include "optim/optimizers.h"
#include "tests/train/task_of.h"
#include "train/evaluate.h"
#include "train/option_error.h"
#include "train/trainer.h"

using namespace frugal;
using namespace frugal::train;

namespace {

EpochResult result_of(double loss, double accuracy, std::optional<double> metric = {}) {
  EpochResult result;
  result.test.loss = loss;
  result.test.accuracy = accuracy;
  result.test.metric = metric;
  return result;
}

std::string path_of_stop_error(const EarlyStopOptions& options, const BatchSpec& spec = {}) {
  try {
    EarlyStop stop(options, *make_task(spec));
  } catch (const OptionError& e) {
    return e.path();
  }
  return "";
}

constexpr int64_t kRowsOfScript = 8, kWordsOfScript = 3;

// Learns nothing: each evaluation has the next of the outputs that were written down for it.
class Scripted : public Module {
 public:
  explicit Scripted(std::vector<Tensor> outputs) : outputs_(std::move(outputs)) {
    logits_ = register_parameter("logits", Tensor::zeros({kRowsOfScript, kWordsOfScript}));
  }
  Variable forward(Variable, Context& context) override {
    return context.training ? scale(logits_, 1) : Variable(outputs_.at(evaluations_++));
  }

 private:
  Variable logits_;
  std::vector<Tensor> outputs_;
  size_t evaluations_ = 0;
};

// Logits for rows whose right answer is the first one.
Tensor answers(int64_t right, float sure, float wrong) {
  Tensor logits = Tensor::zeros({kRowsOfScript, kWordsOfScript});
  for (int64_t row = 0; row < kRowsOfScript; ++row)
    logits.mut<float>()[row * kWordsOfScript + (row < right ? 0 : 1)] = row < right ? sure : wrong;
  return logits;
}

// The epoch of a language model that is called the best one: of two, the first has the higher
// accuracy, and the second the lower perplexity.
int64_t best_epoch(const std::string& metric, EarlyStopOptions stop = {}) {
  Scripted model({answers(7, 4, 20), answers(5, 1, 0.1F)});
  optim::Sgd sgd(model.parameters());
  const auto rows = std::make_shared<data::MemoryDataset>(
      Tensor::zeros({kRowsOfScript, 1, 1, 4}), Tensor::zeros({kRowsOfScript}, DType::i64),
      kWordsOfScript);
  data::Loader batches(rows, {.batch_size = kRowsOfScript, .threads = 0});
  data::Loader test(rows, {.batch_size = kRowsOfScript, .shuffle = false, .threads = 0});
  TrainerOptions options;
  options.epochs = 2;
  options.test = &test;
  options.spec.target = BatchSpec::Target::class_of_token;
  options.spec.metric = metric;
  options.early_stop = std::move(stop);
  Trainer trainer(model, sgd, optim::constant_schedule(0.1), batches, options);
  trainer.run();
  return trainer.state().best->epoch;
}

}  // namespace

TEST_CASE("early stopping counts evaluations since the last better one") {
  EarlyStop stop({2, 0.1, "loss"}, classification());
  CHECK_FALSE(stop.add(result_of(1.0, 0)));
  CHECK_FALSE(stop.add(result_of(0.95, 0)));  // better by less than 0.1
  CHECK_FALSE(stop.add(result_of(0.8, 0)));
  CHECK_FALSE(stop.add(result_of(0.75, 0)));
  EarlyStop other({2, 0.1, "loss"}, classification());
  other.restore(stop.state());
  CHECK(other.add(result_of(0.75, 0)));
  CHECK_FALSE(stop.add(result_of(0.6, 0)));
  CHECK(stop.state().waited == 0);
}

// A difference that is a share of the best value changes its sign: findings/torch_plateau_sign.sh
TEST_CASE("a metric below 0 that stands still is not better") {
  for (const double loss : {-5.0, 5.0}) {
    EarlyStop stop({2, 1e-4, "loss"}, classification());
    CHECK_FALSE(stop.add(result_of(loss, 0)));
    CHECK_FALSE(stop.add(result_of(loss, 0)));
    CHECK(stop.add(result_of(loss + 4e-4, 0)));  // worse, by less than a share of 1e-4 of the best
    CHECK(stop.state().waited == 2);
  }
}

TEST_CASE("a patience of epochs counts those between evaluations, too") {
  EarlyStop stop({5, 0, "loss", EarlyStopOptions::Unit::epochs}, classification());
  CHECK_FALSE(stop.add(result_of(1, 0), 4));
  CHECK_FALSE(stop.add(result_of(2, 0), 4));
  CHECK(stop.state().waited == 4);
  CHECK_FALSE(stop.add(result_of(0.5, 0), 4));
  CHECK_FALSE(stop.add(result_of(0.5, 0), 4));
  CHECK(stop.add(result_of(0.5, 0), 1));
}

TEST_CASE("what is measured: the validation set where there is one; a perplexity falls") {
  EpochResult result = result_of(2, 0.5, 7.0);
  BatchSpec spec;
  spec.target = BatchSpec::Target::class_of_token;
  spec.metric = "perplexity";
  const TaskPtr text = make_task(spec);
  CHECK(measure_of(result, "loss", *text) == -2);
  CHECK(measure_of(result, "accuracy", *text) == 0.5);
  CHECK(measure_of(result, "metric", *text) == -7);
  CHECK(score_of(result, *text) == -7);
  spec.metric = "f1";
  CHECK(measure_of(result, "metric", *make_task(spec)) == 7);
  CHECK(score_of(result, *make_task(spec)) == 7);
  EarlyStop stop({1, 0, "metric"}, *text);
  CHECK_FALSE(stop.add(result_of(2, 0.5, 7.0)));
  CHECK_FALSE(stop.add(result_of(2, 0.5, 6.0)));
  CHECK(stop.add(result_of(2, 0.5, 6.5)));
  // The best one so far goes into a checkpoint, which holds finite numbers.
  EarlyStop infinite({2, 0, "metric"}, *text);
  CHECK_FALSE(infinite.add(result_of(800, 0.5, HUGE_VAL)));
  CHECK(std::isfinite(infinite.state().best.value()));
  CHECK_FALSE(infinite.add(result_of(800, 0.5, HUGE_VAL)));
  CHECK(infinite.state().waited == 1);
  CHECK_FALSE(infinite.add(result_of(2, 0.5, 1e300)));
  CHECK(infinite.state().waited == 0);
  // One that is no number is the worst in either direction, and any other one is better.
  for (const char* metric : {"perplexity", "f1"}) {
    spec.metric = metric;
    const TaskPtr task = make_task(spec);
    EarlyStop unknown({2, 0, "metric"}, *task);
    CHECK_FALSE(unknown.add(result_of(2, 0.5, std::nan(""))));
    CHECK(std::isfinite(unknown.state().best.value()));
    CHECK_FALSE(unknown.add(result_of(2, 0.5, 0.4)));
    CHECK(unknown.state().waited == 0);
    CHECK_FALSE(unknown.add(result_of(2, 0.5, std::nan(""))));
    CHECK(unknown.state().waited == 1);
    CHECK(score_of(result_of(2, 0.5, std::nan("")), *task) <
          score_of(result_of(2, 0.5, 0.4), *task));
  }
  result.validation = result_of(3, 0.25).test;
  CHECK(measure_of(result, "loss", *text) == -3);
  CHECK(score_of(result, *text) == 0.25);  // there is no metric
}

TEST_CASE("the best checkpoint of a language model is that of the lowest perplexity") {
  CHECK(best_epoch("perplexity") == 2);
  CHECK(best_epoch("perplexity", EarlyStopOptions{5, 0, "metric"}) == 2);
  CHECK(best_epoch("perplexity", EarlyStopOptions{5, 0, "accuracy"}) == 1);
  CHECK(best_epoch("") == 1);  // without a metric, the highest accuracy is the best
}

TEST_CASE("options of early stopping that say nothing") {
  CHECK(path_of_stop_error({0, 0, "loss"}) == "early_stop.patience");
  CHECK(path_of_stop_error({1, -1, "loss"}) == "early_stop.min_delta");
  CHECK(path_of_stop_error({1, 0, "speed"}) == "early_stop.metric");
  CHECK(path_of_stop_error({1, 0, "metric"}) == "early_stop.metric");
  CHECK(path_of_stop_error({1, 0, "accuracy"}).empty());
  BatchSpec numbers;
  numbers.target = BatchSpec::Target::values;
  CHECK(path_of_stop_error({1, 0, "accuracy"}, numbers) == "early_stop.metric");
  CHECK(path_of_stop_error({1, 0, "loss"}, numbers).empty());
  CHECK(path_of_stop_error({1, 0, "metric"}, numbers).empty());
  BatchSpec views;
  views.target = BatchSpec::Target::views;
  views.metric = "knn";
  CHECK(path_of_stop_error({1, 0, "loss"}, views) == "early_stop.metric");
  CHECK(path_of_stop_error({1, 0, "accuracy"}, views) == "early_stop.metric");
  CHECK(path_of_stop_error({1, 0, "metric"}, views).empty());
}
