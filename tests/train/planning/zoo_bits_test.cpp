// Memory never rises when bits fall, for every network.
#include <doctest/doctest.h>

#include "compress/policies/actnn_policy.h"
#include "models/sequential/sequential.h"
#include "tests/train/planning/planned.h"
#include "tests/train/tiny_run.h"
#include "train/planning/meta_step.h"

namespace frugal::train {
namespace {

using models::Family;
using models::Network;

constexpr int64_t kMetaBatch = 4;

BatchSpec spec_of(const Network& network) {
  constexpr int64_t kSide = 224, kTokens = 128, kClasses = 10;
  BatchSpec spec{{kSide, kSide, 3}, kClasses};
  if (network.traits.reads_rows) spec = {{kTokens}, kClasses, BatchSpec::Kind::rows};
  if (network.traits.learns_from_views) spec.target = BatchSpec::Target::views;
  switch (network.traits.family) {
    case Family::images:
      break;
    case Family::segmentation:
      spec.target = BatchSpec::Target::class_of_pixel;
      break;
    case Family::detection:
      spec.target = BatchSpec::Target::boxes;
      break;
    case Family::encoder:
      spec = {{kTokens}, kClasses, BatchSpec::Kind::sequences};
      spec.vocabulary = 1000;
      break;
    case Family::decoder:
      spec = {{kTokens}, 1000, BatchSpec::Kind::sequences, BatchSpec::Target::class_of_token};
      spec.vocabulary = 1000;
      break;
    case Family::graph:
      break;
  }
  return spec;
}

models::Options options_of(const Network& network, const BatchSpec& spec) {
  models::Options options;
  const auto set = [&](const char* key, const models::Value& value) {
    if (models::has_option(network.name, options, key)) options[key] = value;
  };
  set("num_classes", spec.classes);
  set("in_features", spec.sample.numel());
  if (spec.vocabulary > 0) set("vocab_size", spec.vocabulary);
  // Most of what it keeps is then what its gated units read.
  if (network.name == "decoder") options["feed_forward"] = int64_t{8192};
  if (network.name == "sequential") {
    const auto conv = models::layer("conv2d", {{"out_channels", 16}, {"kernel_size", 3}});
    options["modules"] =
        models::Value::List{conv,   "gelu", conv, "batch_norm", "silu",      conv,
                            "silu", "silu", conv, "relu",       "mean_pool", "linear"};
    options["sample"] = std::vector<int64_t>{spec.sample[0], spec.sample[1], spec.sample[2]};
  }
  return options;
}

MetaRun run_of(const Network& network) {
  RunRecipe recipe;
  MetaRun run;
  if (network.traits.family == Family::graph) {
    const TinyGraph graph{.nodes = 4000, .edges = 12000, .fanouts = {}};
    recipe = tiny_run(network.name, {}, graph);
    Batch batch = *recipe.open_train()->next();
    for (Tensor* on_host : {&batch.input, &batch.target}) {
      const CategoryScope scope(Category::input);
      *on_host = Tensor::empty(on_host->shape(), on_host->dtype(), kMeta);
    }
    run.shape = [batch](int64_t, Device) { return batch; };
    run.has_blocks = false;
  } else {
    const BatchSpec spec = spec_of(network);
    recipe = tiny_run(network.name, options_of(network, spec), spec);
  }
  run.make_model = recipe.make_model;
  run.make_optimizer = recipe.make_optimizer;
  run.task = recipe.options.task;
  return run;
}

TEST_CASE("memory never rises when bits fall, for every network") {
  using compress::ActnnOptions;
  using compress::AdaptiveOptions;
  struct Row {
    const char* name;
    compress::Choice (*of)(double bits);
  };
  const Row rows[] = {
      {"bits", [](double bits) { return compress::bits(bits); }},
      {"adaptive",
       [](double bits) { return compress::Choice{.policy = AdaptiveOptions{.average = bits}}; }},
      {"actnn",
       [](double bits) { return compress::Choice{.policy = ActnnOptions{.average = bits}}; }},
      {"actnn, mixed", [](double bits) {
         return compress::Choice{.policy = ActnnOptions{.average = bits, .mixed = true}};
       }}};
  for (const Network& network : models::networks()) {
    CAPTURE(network.name);
    MetaStep step(run_of(network), kMetaBatch);
    for (const Row& row : rows) {
      CAPTURE(row.name);
      int64_t more = step.step(nullptr, kMetaBatch, 0).saved();
      for (const double bits : {8, 4, 3, 2, 1}) {
        CAPTURE(bits);
        const auto policy = compress::make_policy(row.of(bits), kMeta, 0);
        step.step(policy.get(), kMetaBatch, 0);
        const int64_t now = step.step(policy.get(), kMetaBatch, 0).saved();
        CHECK(now > 0);
        CHECK(now <= more);
        more = now;
      }
    }
  }
}

TEST_CASE("a fractional average counts on meta what a run takes") {
  for (const PlannedCase& planned : {planned_resnet(), planned_bert()})
    for (const double average : {2.9, 2.25, 1.5}) {
      CAPTURE(planned.network);
      CAPTURE(average);
      const compress::Choice choice = planned.bits(average);
      REQUIRE(choice.is_adaptive());
      const auto on_meta = compress::make_policy(choice, kMeta, 0),
                 policy = compress::make_policy(choice, kCpu, 0);
      const PlannerOptions options = planned.with(choice);
      MetaStep step(options.run, planned.batch);
      const StepMemory counted = step.step(on_meta.get(), planned.batch, 0);
      const StepMemory first = real_step(planned, policy.get()).memory;
      CHECK(first.packed == counted.packed);
      compress::AdaptivePolicy& adaptive = *PolicyParts(*policy).adaptive;
      // Any sensitivities do: the average stays.
      for (const auto& item : adaptive.items())
        adaptive.measured(item.seq, std::exp2(static_cast<double>(item.seq * 7 % 5)), 0);
      adaptive.allocate();
      const StepMemory later = real_step(planned, policy.get()).memory;
      const auto ratio = static_cast<double>(later.packed) / static_cast<double>(counted.packed);
      CHECK(ratio == doctest::Approx(1).epsilon(0.03));
      // What the whole numbers around it take.
      const auto at = [&](double bits) {
        const auto whole = compress::make_policy(planned.bits(bits), kMeta, 0);
        return step.step(whole.get(), planned.batch, 0).packed;
      };
      CHECK(counted.packed > at(std::floor(average)));
      CHECK(counted.packed < at(std::ceil(average)));
    }
}

}  // namespace
}  // namespace frugal::train
