// What is drawn from a run's seed is drawn apart (core/random/random_streams.h).
#include "core/random/random_streams.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "apps/bench/gradient_bench.h"
#include "apps/config/data/make_data.h"
#include "apps/config/data/random_dataset.h"
#include "apps/config/make_model.h"
#include "apps/config/make_optimizer.h"
#include "apps/config/resolve.h"
#include "apps/json.h"
#include "models/init.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

Config config_of(const Json& changes) {
  Json document = Json::parse(R"({
    "model": {"name": "mlp", "hidden": [32]},
    "data": {"name": "random", "shape": [6, 6, 1], "classes": 4, "batch_size": 16,
             "train_samples": 64, "test_samples": 64, "workers": 0}})");
  document.merge_patch(changes);
  Config config = parse_config(document);
  resolve(config);
  return config;
}

}  // namespace

TEST_CASE("no weights are the patterns of the random data's classes") {
  const Config config = config_of(Json{{"seed", 3}});
  const auto model = make_model(config, batch_spec(config), kCpu);
  // An image is noise in (-1, 1) and its class's pattern: the mean over many is the pattern.
  const RandomDataset data({6, 6, 1}, 4, 4096, 3, streams::kTrainImages);
  std::vector<std::vector<double>> patterns(4, std::vector<double>(36));
  std::vector<int> counts(4);
  std::vector<float> image(36);
  for (int64_t i = 0; i < data.size(); ++i) {
    const auto label = static_cast<size_t>(data.get_into(i, {}, image.data()));
    ++counts[label];
    for (size_t j = 0; j < 36; ++j) patterns[label][j] += static_cast<double>(image[j]);
  }
  int compared = 0;
  for (const auto& p : model->parameters()) {
    if (p.parameter->value().numel() < 36) continue;
    const std::vector<double> weights = p.parameter->value().to_vector();
    for (size_t label = 0; label < 4; ++label) {
      double xy = 0, xx = 0, yy = 0;
      for (size_t j = 0; j < 36; ++j) {
        const double x = patterns[label][j] / counts[label], y = weights[j];
        xy += x * y, xx += x * x, yy += y * y;
      }
      CHECK(std::abs(xy) < 0.7 * std::sqrt(xx * yy));  // over four standard deviations
      ++compared;
    }
  }
  CHECK(compared >= 8);
}

TEST_CASE("random sequences to test with are none of those to train with") {
  const Config config = config_of(Json::parse(R"({
    "model": {"name": "bert_tiny", "hidden": null, "layers": 1, "width": 16, "heads": 1,
              "vocab_size": 500},
    "data": {"name": "random_tokens", "shape": null, "max_length": 16}})"));
  std::set<std::vector<double>> seen;
  size_t train = 0, test = 0;
  for (const Split split : {Split::train, Split::test}) {
    const auto batches = make_batches(config, split);
    while (const auto batch = batches->next())
      for (int64_t i = 0; i < batch->input.size(0); ++i) {
        (split == Split::train ? train : test) += 1;
        seen.insert(batch->input.slice(0, i, i + 1).to_vector());
      }
  }
  CHECK(train == 64);
  CHECK(test == 64);
  CHECK(seen.size() == train + test);
}

TEST_CASE("dropout draws from its own stream, in benches too") {
  const apps::GradientBench bench(config_of(Json{{"seed", 5}}));
  CHECK(bench.rng() == streams::kDropout.key(5));
}

TEST_CASE("8-bit AdamW rounds by the run's seed") {
  const auto trained = [](int64_t seed) {
    const Config config =
        config_of(Json{{"seed", seed}, {"optim", {{"name", "adamw_8bit"}, {"lr", 0.01}}}});
    // Weights and gradients do not depend on the seed.
    Config fixed = config;
    fixed.run.seed = 1;
    fixed.model.options["hidden"] = std::vector<int64_t>{256};
    const auto model = make_model(fixed, batch_spec(fixed), kCpu);
    const auto optimizer = make_optimizer(config, *model);
    for (uint64_t step = 0; step < 3; ++step) {
      for (const auto& p : model->parameters()) {
        models::Init init;
        init.rng.restore({9, step});
        p.parameter->set_grad(models::normal(init, p.parameter->shape(), 1));
      }
      optimizer->step(0.01);
    }
    return model->parameters()[0].parameter->value().to_vector();
  };
  CHECK(trained(1) == trained(1));
  CHECK(trained(1) != trained(2));
}

}  // namespace frugal::apps
