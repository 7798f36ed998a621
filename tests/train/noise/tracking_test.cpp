// What tracking measures of batches that hold more than an input: masks of tokens, graphs.
#include <doctest/doctest.h>

#include "tests/train/gradient_of.h"
#include "tests/train/tiny_run.h"
#include "train/noise/convergence.h"
#include "train/noise/gradient_noise.h"

using namespace frugal;
using namespace frugal::train;

namespace {

const TinyGraph kSubgraphs{.batch = 40, .fanouts = {4, 4}};

// Sequences of 12 tokens, and a network whose attention reads their mask.
RunRecipe tokens() {
  constexpr int64_t kLength = 12, kWords = 100;
  BatchSpec spec;
  spec.sample = {kLength};
  spec.classes = 3;
  spec.kind = BatchSpec::Kind::sequences;
  spec.vocabulary = kWords;
  RunRecipe recipe = tiny_run("bert_tiny",
                              {{"layers", 1},
                               {"width", 16},
                               {"heads", 2},
                               {"dropout", 0},
                               {"attention_dropout", 0},
                               {"vocab_size", kWords},
                               {"num_classes", 3}},
                              spec);
  recipe.open_train = [] {
    std::vector<data::Sequence> all(32);
    for (size_t i = 0; i < all.size(); ++i) {
      all[i].label = static_cast<int64_t>(i % 3);
      for (uint64_t at = 0; at < kLength; ++at)
        all[i].ids.push_back(static_cast<int32_t>(uniform_int({5, i}, at, kWords)));
      all[i].second = kLength;
    }
    return std::make_unique<data::SequenceBatches>(
        all, data::SequenceBatchOptions{.batch_size = 16, .padding = 0, .pad_to = 0});
  };
  return recipe;
}

struct Watched : PolicyRun {
  TrackingOptions options;

  explicit Watched(RunRecipe recipe, const compress::Choice& choice) : PolicyRun(recipe, choice) {
    options.interval = 1;
    options.sgd = false;
    options.batch = 16;
    if (recipe.options.spec.kind != BatchSpec::Kind::graph) return;
    options.batch = 1;
    options.other = other_batches(recipe);
  }
  static Watched graph() {
    return Watched(tiny_run("gcn", {{"width", 32}, {"dropout", 0}}, kSubgraphs),
                   compress::bits(2, {.min_elements = 96}));
  }
  // One that is not the last of an epoch, which has fewer targets.
  Batch next_whole() {
    data::BatchSource& batches = run.batches();
    if (batches.state().next_batch + 1 >= batches.batches())
      batches.seek({batches.state().epoch + 1, 0});
    return *batches.next();
  }
  std::vector<float> gradient_once(const Batch& batch, uint64_t number, bool packed) {
    std::vector<float> all = gradient(batch, number, packed);
    model().zero_grad();
    return all;
  }
  Tracking tracking() { return Tracking(task(), model(), *policy, options); }
  Convergence measured(const std::vector<Batch>& each) {
    Tracking found = tracking();
    for (size_t i = 0; i < each.size(); ++i) {
      found.before(each[i], static_cast<int64_t>(i) + 1);
      found.after(static_cast<int64_t>(i) + 1);
    }
    return found.report().value();
  }
};

}  // namespace

TEST_CASE("tracking sees which tokens a mask hides") {
  Watched p(tokens(), compress::bits(0));
  Batch batch = p.next_whole();
  REQUIRE(batch.extras[0].first == "attention_mask");
  auto* mask = batch.extras[0].second.mut<int64_t>();
  for (int64_t i = 0; i < batch.input.size(0); ++i) mask[i * batch.input.size(1) + 3] = 0;
  const Convergence before = p.measured({batch});
  for (int64_t i = 0; i < batch.input.size(0); ++i)
    batch.input.mut<int64_t>()[i * batch.input.size(1) + 3] = 7;
  CHECK((numbers_of(p.measured({batch})) == numbers_of(before)));
  CHECK(before.minibatch_variance > 0);
  batch.extras.clear();
  CHECK((numbers_of(p.measured({batch})) != numbers_of(before)));
}

TEST_CASE("two subgraphs tell the variances of gradients") {
  Watched p = Watched::graph();
  std::vector<Batch> batches;
  for (int i = 0; i < 24; ++i) batches.push_back(p.next_whole());
  const Convergence found = p.measured(batches);
  const Batch& batch = batches.front();
  GradientNoise rounding(p.gradient_once(batch, 0, false));
  for (uint64_t draw = 0; draw < 24; ++draw) rounding.add(p.gradient_once(batch, draw, true));
  const size_t weights = p.gradient_once(batch, 0, false).size();
  GradientNoise sampling(std::vector<float>(weights, 0.0f));
  for (int i = 0; i < 48; ++i) sampling.add(p.gradient_once(p.next_whole(), 0, false));
  check_within(found.added_variance, rounding.variance().value);
  check_within(found.minibatch_variance, sampling.variance().value);
}

TEST_CASE("batches of a step make its variance smaller") {
  Watched one = Watched::graph(), four = Watched::graph();
  four.options.batch = 4;
  const Batch batch = one.next_whole();
  const Convergence a = one.measured({batch}), b = four.measured({batch});
  CHECK(b.minibatch_variance == doctest::Approx(a.minibatch_variance / 4));
  CHECK(b.added_variance == doctest::Approx(a.added_variance / 4));
}

TEST_CASE("a trainer knows how many samples its steps have, where nobody says so") {
  // The images of an epoch make 4 batches, so a step of 8 batches has no more than these.
  const auto tracked = [](int64_t accumulation, int64_t batch) {
    RunRecipe recipe =
        tiny_run("mlp", {{"hidden", std::vector<int64_t>{16}}}, {.batch = 16, .samples = 64});
    recipe.options.steps = 2;
    recipe.options.gradient_accumulation = accumulation;
    recipe.options.compression.choice = compress::bits(2, {.min_elements = 96});
    recipe.options.compression.tracking =
        TrackingOptions{.interval = 1, .samples = 8, .batch = batch};
    Run run(recipe);
    run.train();
    return numbers_of(run.trainer().compression().convergence().value());
  };
  CHECK((tracked(2, 0) == tracked(2, 32)));
  CHECK((tracked(8, 0) == tracked(8, 64)));
  CHECK((tracked(8, 128) == tracked(8, 64)));
  CHECK((tracked(2, 32) != tracked(2, 16)));
}

TEST_CASE("what a subgraph is compared with depends on the step alone") {
  Watched p = Watched::graph();
  const std::vector<Batch> batches = {p.next_whole(), p.next_whole()};
  Tracking whole = p.tracking();
  std::vector<double> first;
  for (int64_t step : {1, 2}) {
    whole.before(batches[static_cast<size_t>(step - 1)], step);
    whole.after(step);
    if (step == 1) first = whole.state();
  }
  Watched q = Watched::graph();
  Tracking resumed = q.tracking();
  resumed.restore(first);
  resumed.before(batches[1], 2);
  resumed.after(2);
  CHECK(resumed.state() == whole.state());
}
