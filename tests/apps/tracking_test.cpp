// What tracking measures of batches that hold more than an input: masks of tokens, graphs.
#include <doctest/doctest.h>

#include <sstream>

#include "apps/cli/report.h"
#include "apps/config/make_choice.h"
#include "apps/config/make_data.h"
#include "apps/config/make_model.h"
#include "apps/config/make_task.h"
#include "apps/config/resolve.h"
#include "apps/config/train_options.h"
#include "tests/apps/gradient_of.h"
#include "tests/apps/run.h"
#include "train/convergence.h"
#include "train/gradient_noise.h"

namespace frugal::apps {
namespace {

constexpr const char* kTokens = R"({
  "model": {"name": "bert_tiny", "layers": 1, "width": 16, "heads": 2, "dropout": 0,
            "attention_dropout": 0},
  "data": {"name": "random_tokens", "batch_size": 16, "max_length": 12, "classes": 3},
  "compression": {"level": "L0", "advanced": {"track_interval": 1}}})";

constexpr const char* kGraph = R"({
  "model": {"name": "gcn", "width": 32, "dropout": 0},
  "data": {"name": "random_graph", "nodes": 600, "edges": 1800, "features": 24, "classes": 3,
           "sampler": "neighbours", "batch_size": 40, "fan_outs": [4, 4]},
  "optim": {"name": "adam", "lr": 0.01},
  "compression": {"level": "L1.2", "advanced": {"min_elements": 96, "track_interval": 1}},
  "train": {"epochs": 4}, "threads": 1})";

struct Problem {
  Config config;
  std::shared_ptr<Module> model;
  std::unique_ptr<data::BatchSource> batches;
  std::unique_ptr<SavePolicy> policy;
  TrackingOptions options;
  TaskPtr task;

  explicit Problem(const char* text) {
    config = parse_config(Json::parse(text));
    resolve(config);
    model = make_model(config, batch_spec(config), kCpu);
    task = make_task(config);
    batches = make_batches(config, Split::train);
    policy = make_policy(make_choice(config.compression), kCpu, 0);
    options = tracking_options(config).value();
  }
  // A whole one.
  Batch next() {
    if (batches->state().next_batch + 1 >= batches->batches())
      batches->seek({batches->state().epoch + 1, 0});
    return *batches->next();
  }
  std::vector<float> gradient(const Batch& batch, uint64_t number, bool packed) {
    std::vector<float> all = gradient_of(*model, batch, packed ? policy.get() : nullptr, number);
    model->zero_grad();
    return all;
  }
  Json measured(const std::vector<Batch>& each) {
    Tracking tracking(*task, *model, *policy, options);
    for (size_t i = 0; i < each.size(); ++i) {
      tracking.before(each[i], static_cast<int64_t>(i) + 1);
      tracking.after(static_cast<int64_t>(i) + 1);
    }
    return to_json(tracking.report());
  }
};

}  // namespace

TEST_CASE("tracking sees which tokens a mask hides") {
  Problem p(kTokens);
  Batch batch = p.next();
  REQUIRE(batch.extras[0].first == "attention_mask");
  auto* mask = batch.extras[0].second.mut<int64_t>();
  for (int64_t i = 0; i < batch.input.size(0); ++i) mask[i * batch.input.size(1) + 3] = 0;
  const Json before = p.measured({batch});
  for (int64_t i = 0; i < batch.input.size(0); ++i)
    batch.input.mut<int64_t>()[i * batch.input.size(1) + 3] = 7;
  CHECK(p.measured({batch}) == before);
  CHECK(before["minibatch_variance"] > 0);
  batch.extras.clear();
  CHECK(p.measured({batch}) != before);
}

TEST_CASE("two subgraphs tell the variances of gradients") {
  Problem p(kGraph);
  std::vector<Batch> batches;
  for (int i = 0; i < 24; ++i) batches.push_back(p.next());
  const Json found = p.measured(batches);
  const Batch& batch = batches.front();
  GradientNoise rounding(p.gradient(batch, 0, false));
  for (uint64_t draw = 0; draw < 24; ++draw) rounding.add(p.gradient(batch, draw, true));
  const size_t weights = p.gradient(batch, 0, false).size();
  GradientNoise sampling(std::vector<float>(weights, 0.0f));
  for (int i = 0; i < 48; ++i) sampling.add(p.gradient(p.next(), 0, false));
  const double added = found["added_variance"].get<double>() / rounding.variance().value;
  const double minibatch = found["minibatch_variance"].get<double>() / sampling.variance().value;
  CAPTURE(added);
  CAPTURE(minibatch);
  CHECK(added < 1.5);
  CHECK(added > 1 / 1.5);
  CHECK(minibatch < 1.5);
  CHECK(minibatch > 1 / 1.5);
}

TEST_CASE("batches of a step make its variance smaller") {
  Problem one(kGraph), four(kGraph);
  four.config.train.gradient_accumulation = 4;
  four.options = tracking_options(four.config).value();
  const Batch batch = one.next();
  const Json a = one.measured({batch}), b = four.measured({batch});
  CHECK(b["minibatch_variance"].get<double>() ==
        doctest::Approx(a["minibatch_variance"].get<double>() / 4));
  CHECK(b["added_variance"].get<double>() ==
        doctest::Approx(a["added_variance"].get<double>() / 4));
}

TEST_CASE("what a subgraph is compared with depends on the step alone") {
  Problem p(kGraph);
  const std::vector<Batch> batches = {p.next(), p.next()};
  Tracking whole(*p.task, *p.model, *p.policy, p.options);
  std::vector<double> first;
  for (int64_t step : {1, 2}) {
    whole.before(batches[static_cast<size_t>(step - 1)], step);
    whole.after(step);
    if (step == 1) first = whole.state();
  }
  Problem q(kGraph);
  Tracking resumed(*q.task, *q.model, *q.policy, q.options);
  resumed.restore(first);
  resumed.before(batches[1], 2);
  resumed.after(2);
  CHECK(resumed.state() == whole.state());
}

TEST_CASE("a watched run on subgraphs trains as one that is not; a guarded one changes bits") {
  const TempFolder folder;
  write_file(folder / "c.json", kGraph);
  for (const char* sampler : {"neighbours", "clusters", "random_walk"}) {
    CAPTURE(sampler);
    const std::string train = fmt::format(
        "train {} --json --set data.sampler={} --set data.clusters=50 {}"
        "--set compression.level=L1 --out ",
        folder / "c.json", sampler,
        std::string(sampler) == "random_walk" ? "--set data.sampler_batches=10 " : "");
    const std::string name = folder / sampler;
    const Ran plain = frugal(train + name + "a --set compression.advanced.track_interval=0");
    const Ran watched = frugal(train + name + "b --set compression.advanced.track_interval=4");
    REQUIRE_MESSAGE(watched.status == 0, watched.err);
    CHECK(read_file(name + "a/checkpoint/last.safetensors") ==
          read_file(name + "b/checkpoint/last.safetensors"));
    const Json found = Json::parse(watched.out)["convergence"];
    CHECK(found["minibatch_variance"] > 0);
    CHECK(found["added_variance"] > 0);
    const Ran guarded = frugal(
        train + name + "c --set compression.advanced.track_interval=4 --set compression.guard=0.5");
    REQUIRE_MESSAGE(guarded.status == 0, guarded.err);
    CHECK(Json::parse(guarded.out)["convergence"]["next_bits"] < 4);
  }
}

}  // namespace frugal::apps
