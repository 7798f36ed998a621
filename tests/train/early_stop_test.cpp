#include "train/early_stop.h"

#include <doctest/doctest.h>

#include "train/option_error.h"

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
    EarlyStop stop(options, spec);
  } catch (const OptionError& e) {
    return e.path();
  }
  return "";
}

}  // namespace

TEST_CASE("early stopping counts evaluations since the last better one") {
  EarlyStop stop({2, 0.1, "loss"}, {});
  CHECK_FALSE(stop.add(result_of(1.0, 0)));
  CHECK_FALSE(stop.add(result_of(0.95, 0)));  // better by less than 0.1
  CHECK_FALSE(stop.add(result_of(0.8, 0)));
  CHECK_FALSE(stop.add(result_of(0.75, 0)));
  EarlyStop other({2, 0.1, "loss"}, {});
  other.restore(stop.state());
  CHECK(other.add(result_of(0.75, 0)));
  CHECK_FALSE(stop.add(result_of(0.6, 0)));
  CHECK(stop.state().waited == 0);
}

TEST_CASE("what is measured: the validation set where there is one; a perplexity falls") {
  EpochResult result = result_of(2, 0.5, 7.0);
  BatchSpec spec;
  spec.metric = "perplexity";
  CHECK(measure_of(result, "loss", spec) == -2);
  CHECK(measure_of(result, "accuracy", spec) == 0.5);
  CHECK(measure_of(result, "metric", spec) == -7);
  spec.metric = "f1";
  CHECK(measure_of(result, "metric", spec) == 7);
  result.validation = result_of(3, 0.25).test;
  CHECK(measure_of(result, "loss", spec) == -3);
}

TEST_CASE("options of early stopping that say nothing") {
  CHECK(path_of_stop_error({0, 0, "loss"}) == "train.early_stop.patience");
  CHECK(path_of_stop_error({1, -1, "loss"}) == "train.early_stop.min_delta");
  CHECK(path_of_stop_error({1, 0, "speed"}) == "train.early_stop.metric");
  CHECK(path_of_stop_error({1, 0, "metric"}) == "train.early_stop.metric");
  CHECK(path_of_stop_error({1, 0, "accuracy"}).empty());
}
