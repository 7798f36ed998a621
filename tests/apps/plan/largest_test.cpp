// The largest batch, depth, width and resolution of a configuration that fits.
#include <doctest/doctest.h>

#include "apps/config/make_choice.h"
#include "apps/config/planned_run.h"
#include "apps/config/resolve.h"
#include "apps/config/train_options.h"
#include "tests/apps/run.h"
#include "train/planning/largest.h"

namespace frugal::apps {
namespace {

Config config_of(const char* text, const std::vector<std::string>& sets = {}) {
  Json document = Json::parse(text);
  apply_sets(document, sets);
  return parse_config(document);
}

Largest find_largest(const Config& config, Growth growth, int64_t memory) {
  key_of(config, growth);  // Errors: what nothing reads
  Config resolved = config;
  resolve(resolved);
  const PlannedRun run = planned_run(resolved);
  return LargestSearch(run, growth).find(own_way(run), memory);
}

int64_t peak_of(Config config) {
  resolve(config);
  MetaStep meta(meta_run(config), config.data.batch_size);
  const auto policy =
      make_policy(make_choice(config.compression), kMeta, static_cast<uint64_t>(config.run.seed));
  return meta.step(policy.get(), config.data.batch_size, checkpointed_blocks(config.train)).peak;
}

constexpr const char* kImages = R"({"model": {"name": "resnet18", "stem": "cifar"},
    "data": {"name": "random", "shape": [32, 32, 3], "classes": 10, "batch_size": 4}})";
constexpr const char* kTokens = R"({"model": {"name": "bert_tiny", "heads": 2, "vocab_size": 500},
    "data": {"name": "random_tokens", "max_length": 64, "classes": 2, "batch_size": 64}})";
constexpr const char* kDeepGraph = R"({"model": {"name": "gcn", "layers": 20, "width": 16},
    "data": {"name": "random_graph", "nodes": 5000, "edges": 10000, "features": 16}})";

TEST_CASE("the largest value fits, the next one does not, and packing makes it larger") {
  struct Searched {
    const char* config;
    Growth growth;
    const char* key;
    int64_t step;
    int64_t memory;
  };
  for (const Searched& row : {Searched{kImages, Growth::batch, "data.batch_size", 8, 300 << 20},
                              {kImages, Growth::layers, "model.layers", 2, 300 << 20},
                              {kImages, Growth::width, "model.width", 4, 300 << 20},
                              {kImages, Growth::resolution, "data.shape", 4, 300 << 20},
                              {kTokens, Growth::layers, "model.layers", 1, 100 << 20},
                              {kTokens, Growth::width, "model.width", 2, 100 << 20},
                              {kDeepGraph, Growth::layers, "model.layers", 1, 30 << 20},
                              {kDeepGraph, Growth::width, "model.width", 4, 30 << 20}}) {
    const std::string name = std::string(row.key) + " of " + row.config;
    CAPTURE(name);
    const auto with = [&](int64_t value, const std::string& bits) {
      const std::string text = row.growth == Growth::resolution
                                   ? fmt::format("[{},{},3]", value, value)
                                   : fmt::format("{}", value);
      return peak_of(
          config_of(row.config, {fmt::format("{}={}", row.key, text), "compression.bits=" + bits}));
    };
    CHECK(key_of(config_of(row.config), row.growth) == row.key);
    int64_t before = 0;
    for (const char* bits : {"0", "2"}) {
      const Config config = config_of(row.config, {std::string("compression.bits=") + bits,
                                                   "compression.advanced.min_elements=16384"});
      const Largest found = find_largest(config, row.growth, row.memory);
      CHECK(found.value > before);
      CHECK_FALSE(found.limited);
      CHECK(found.peak <= row.memory);
      CHECK(found.peak == with(found.value, bits));
      CHECK(with(found.value + row.step, bits) > row.memory);
      before = found.value;
    }
  }
}

TEST_CASE("no value fits, every value fits, and the search begins below the run's own value") {
  const Largest none = find_largest(config_of(kImages), Growth::batch, 1 << 20);
  CHECK(none.value == 0);
  CHECK(none.peak == peak_of(config_of(kImages, {"data.batch_size=1"})));
  const int64_t of_three = peak_of(config_of(kImages, {"data.batch_size=3"}));
  const Largest few = find_largest(config_of(kImages), Growth::batch, of_three);
  CHECK(few.value >= 3);
  CHECK(few.value < 8);
  CHECK(few.peak <= of_three);
  const Largest all = find_largest(config_of(kDeepGraph), Growth::layers, int64_t{1} << 50);
  CHECK(all.value == 4096);
  CHECK(all.limited);
  const Config large = config_of(kImages, {"data.batch_size=100000"});
  CHECK(find_largest(large, Growth::batch, 300 << 20).value ==
        find_largest(config_of(kImages), Growth::batch, 300 << 20).value);
}

TEST_CASE("what a run does not have cannot grow") {
  const std::pair<const char*, Growth> rows[] = {
      {kDeepGraph, Growth::batch}, {kDeepGraph, Growth::resolution}, {kTokens, Growth::resolution}};
  for (const auto& [text, growth] : rows)
    CHECK_THROWS_WITH_AS(find_largest(config_of(text), growth, 1 << 30),
                         doctest::Contains("which is to grow"), ConfigError);
  for (const Growth growth : {Growth::layers, Growth::width})
    CHECK_THROWS_WITH_AS(find_largest(config_of(kImages, {"model.name=swin_t"}), growth, 1 << 30),
                         doctest::Contains("which is to grow"), ConfigError);
  CHECK_THROWS_WITH_AS(
      find_largest(config_of(kImages, {"compression.memory_budget=1/4"}), Growth::batch, 1 << 30),
      doctest::Contains("budget.memory"), ConfigError);
}

}  // namespace
}  // namespace frugal::apps
