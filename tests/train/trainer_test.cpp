#include "train/trainer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "compress/policies/learner.h"
#include "compress/policies/policy_roles.h"
#include "data/loader.h"
#include "data/memory_dataset.h"
#include "models/freeze.h"
#include "models/zoo/mlp.h"
#include "optim/optimizers.h"
#include "tests/train/task_of.h"
#include "tests/train/temp_folder.h"
#include "train/evaluate.h"
#include "train/option_error.h"
#include "train/planning/planned_run.h"
#include "train/planning/planner.h"

using namespace frugal;
using namespace frugal::train;

namespace {

constexpr int64_t kBarSide = 8, kBarClasses = 4;

// [count, 8, 8, 1]: class c is a bright row 2 c, under noise.
DatasetPtr bars(int64_t count, uint64_t seed) {
  const CategoryScope scope(Category::input);  // activations are counted below
  Tensor images = Tensor::empty({count, kBarSide, kBarSide, 1});
  Tensor labels = Tensor::empty({count}, DType::i64);
  for (int64_t i = 0; i < count; ++i) {
    labels.mut<int64_t>()[i] = i % kBarClasses;
    for (int64_t at = 0; at < kBarSide * kBarSide; ++at)
      images.mut<float>()[i * kBarSide * kBarSide + at] =
          0.5f * normal({seed, 0}, static_cast<uint64_t>(i * kBarSide * kBarSide + at)) +
          static_cast<float>(at / kBarSide == 2 * (i % kBarClasses));
  }
  return std::make_shared<data::MemoryDataset>(images, labels, kBarClasses);
}

ParameterGroup all_of(Module& model) {
  ParameterGroup all;
  for (const auto& p : model.parameters()) all.parameters.emplace_back(p.name, *p.parameter);
  return all;
}

// A network of one's own, with data of one's own; dropout draws from the run's stream.
struct BarsRun {
  models::Init init;
  models::Mlp model{init, {kBarSide * kBarSide, {64, 32}, kBarClasses, 0.2}};
  optim::Sgd sgd{{all_of(model)}, {0.9, false}};
  data::Loader batches{bars(320, 1), {32, true, false, 0, 0}};
  data::Loader test{bars(64, 2), {64, false, false, 0, 0}};
  TrainerOptions options;

  explicit BarsRun(double bits = 4) {
    options.epochs = 3;
    options.log_interval = 4;
    options.test = &test;
    options.compression.choice = compress::bits(bits, {.min_elements = 96});
    options.compression.choice.measuring.interval = 6;
    options.compression.choice.measuring.first = 2;
    options.compression.choice.measuring.samples = 8;
  }
  Trainer trainer() {
    return Trainer(model, sgd, optim::constant_schedule(0.05), batches, options);
  }
  std::vector<float> weights() {
    std::vector<float> weights;
    for (const auto& p : model.parameters()) {
      const Tensor& w = p.parameter->value();
      weights.insert(weights.end(), w.data<float>(), w.data<float>() + w.numel());
    }
    return weights;
  }
};

// A planner of parts of its own.
void plan(BarsRun& run, const std::string& budget) {
  PlannerOptions options;
  options.run.make_model = [](Device device) -> std::shared_ptr<Module> {
    models::Init init{Rng(0), device};
    return std::make_shared<models::Mlp>(
        init, models::MlpOptions{kBarSide * kBarSide, {64, 32}, kBarClasses, 0.2});
  };
  options.run.make_optimizer = [](Module& model) -> std::unique_ptr<Optimizer> {
    return std::make_unique<optim::Sgd>(std::vector<ParameterGroup>{all_of(model)},
                                        optim::SgdOptions{0.9, false});
  };
  BatchSpec spec;
  spec.sample = {kBarSide, kBarSide, 1};
  spec.classes = kBarClasses;
  options.run.task = make_task(spec);
  options.choice = compress::budget(budget, {.min_elements = 96});
  options.budget = parse_budget(budget, "budget");
  options.batch = 32;
  options.test_batch = 64;
  run.options.compression.planner = std::make_shared<Planner>(options);
  run.options.compression.choice.policy = options.choice.policy;
}

std::string path_of_error(const TrainerOptions& options) {
  BarsRun run;
  run.options = options;
  try {
    run.trainer();
  } catch (const OptionError& e) {
    return e.path();
  }
  return "";
}

}  // namespace

TEST_CASE("a network of one's own learns, and what backward needs is packed") {
  for (const double bits : {0.0, 4.0, 2.5}) {
    CAPTURE(bits);
    BarsRun run(bits);
    Trainer trainer = run.trainer();
    CHECK(trainer.steps() == 30);
    CHECK(trainer.run());
    CHECK(trainer.state().last->test.accuracy > 0.9);
    CHECK((trainer.state().memory.packed > 0) == (bits > 0));
    const auto again = evaluate(*make_task(run.options.spec), run.model, run.test);
    CHECK(again->loss == trainer.state().last->test.loss);
  }
}

TEST_CASE("fit gives the last evaluation, and none without a test set") {
  BarsRun run;
  run.options.epochs = 1;
  const auto schedule = optim::constant_schedule(0.05);
  const auto last = fit(run.model, run.sgd, schedule, run.batches, run.options);
  REQUIRE(last);
  CHECK(last->epoch == 1);
  CHECK(last->test.samples == 64);
  BarsRun blind;
  blind.options.test = nullptr;
  CHECK(!fit(blind.model, blind.sgd, schedule, blind.batches, blind.options));
}

TEST_CASE("options of a trainer are those that a configuration may have") {
  const auto refused = [](int64_t TrainerOptions::*member) {
    BarsRun run;
    run.options.*member = 0;
    CHECK_THROWS_AS(
        Trainer(run.model, run.sgd, optim::constant_schedule(0.05), run.batches, run.options),
        OptionError);
  };
  refused(&TrainerOptions::log_interval);
  refused(&TrainerOptions::eval_interval);
  refused(&TrainerOptions::gradient_accumulation);
}

// Dropout, the order of samples and the rounding of codes draw random numbers.
TEST_CASE("how often a run evaluates does not change what it trains") {
  BarsRun always, rarely, never;
  rarely.options.eval_interval = 3;
  never.options.test = nullptr;
  for (BarsRun* run : {&always, &rarely, &never}) REQUIRE(run->trainer().run());
  CHECK(always.weights() == rarely.weights());
  CHECK(always.weights() == never.weights());
}

TEST_CASE("callbacks see each step and epoch, and may end the run") {
  BarsRun run;
  std::vector<int64_t> steps, logged, epochs;
  run.options.on_step = [&](const StepReport& report) {
    steps.push_back(report.step);
    if (report.logs) logged.push_back(report.step);
    CHECK(std::isfinite(report.loss));
    CHECK(report.gradient_norm > 0);
    return report.step != 13;
  };
  run.options.on_epoch = [&](const EpochReport& report) {
    epochs.push_back(report.epoch);
    CHECK(report.result.has_value());
    return true;
  };
  Trainer trainer = run.trainer();
  CHECK(!trainer.run());
  CHECK(steps.back() == 13);
  CHECK(steps.size() == 13);
  CHECK(logged == std::vector<int64_t>{4, 8, 12});
  CHECK(epochs == std::vector<int64_t>{1});
  CHECK(trainer.run());  // goes on
  CHECK(steps.size() == 30);
  CHECK(epochs == std::vector<int64_t>{1, 2, 3});
}

namespace {

// Keeps everything raw, and notes for each pass the step that it is told.
class Noting final : public SavePolicy, public compress::Learner {
 public:
  struct Pass {
    uint64_t number, step;
    bool learns;
    bool operator==(const Pass&) const = default;
  };
  explicit Noting(std::vector<Pass>& noted) : noted_(noted) {}
  Decision decide(const SaveInfo& info, const Tensor&) override {
    if (info.seq == 0) noted_.push_back({info.step, step_of(info.step), learns_in(info.step)});
    return {};
  }
  void add_roles(compress::PolicyRoles& roles) override {
    compress::PolicyRoles::note(roles.learner, static_cast<compress::Learner*>(this));
  }
  compress::Learned learned() const override { return {"noting", 1, {}}; }
  void restore_learned(const compress::Learned&) override {}
  compress::Learned joined(const std::vector<compress::Learned>&) const override {
    return learned();
  }
  bool learns_at(uint64_t step) const override { return step % 3 == 0; }

 private:
  std::vector<Pass>& noted_;
};

}  // namespace

TEST_CASE("policies that learn go by steps, of one or more batches, since layers were thawed") {
  for (const int64_t freeze_epochs : {0, 1}) {
    CAPTURE(freeze_epochs);
    BarsRun run;
    if (freeze_epochs > 0) freeze(run.model, {run.model.parameters().front().name});
    std::vector<Noting::Pass> noted, wanted;
    run.options.compression.choice = {.policy = compress::OwnPolicy{[&](Device, uint64_t) {
                                        return std::make_unique<Noting>(noted);
                                      }}};
    run.options.gradient_accumulation = 4;  // 10 batches are steps of 4, 4 and 2
    run.options.epochs = 2;
    run.options.freeze_epochs = freeze_epochs;
    CHECK(run.trainer().run());
    uint64_t number = 0;
    for (const uint64_t step : {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5}) {
      const uint64_t told = freeze_epochs > 0 && step >= 3 ? step - 3 : step;
      wanted.push_back({number++, told, told % 3 == 0});
    }
    CHECK(noted == wanted);
  }
}

TEST_CASE("sensitivities of layers that are thawed are measured in the next step") {
  BarsRun run(2.5);
  freeze(run.model, {run.model.parameters().front().name});
  run.options.compression.choice.measuring = {
      .interval = 1000, .first = 2, .samples = 8, .share = 1};
  run.options.freeze_epochs = 1;
  std::map<int64_t, size_t> measured;  // tensors, by step
  run.options.on_event = [&](const Compression::Event& event, int64_t step) {
    const auto* widths = std::get_if<Compression::Widths>(&event);
    REQUIRE(widths != nullptr);
    measured[step] = static_cast<size_t>(
        std::count_if(widths->sensitivities.begin(), widths->sensitivities.end(),
                      [](const auto& each) { return each.has_value(); }));
    CHECK(measured[step] == widths->seqs.size());
  };
  CHECK(run.trainer().run());
  // An epoch has 10 steps.
  REQUIRE(measured.size() == 2);
  CHECK(measured.at(2) > 0);
  CHECK(measured.at(11) > 0);
}

TEST_CASE("a run that was ended goes on from its folder to the same bits") {
  for (const double bits : {4.0, 2.5}) {
    CAPTURE(bits);
    BarsRun whole(bits);
    REQUIRE(whole.trainer().run());
    for (const int64_t cut : {3, 10, 17}) {
      CAPTURE(cut);
      const TempFolder temp;
      {
        BarsRun first(bits);
        first.options.folder = std::make_shared<RunFolder>(temp.path + "/run", false);
        first.options.on_step = [&](const StepReport& report) { return report.step != cut; };
        CHECK(!first.trainer().run());
      }
      BarsRun second(bits);
      second.options.folder = std::make_shared<RunFolder>(temp.path + "/run", true);
      Trainer trainer = second.trainer();
      CHECK(trainer.state().step == cut);
      CHECK(trainer.run());
      CHECK(second.weights() == whole.weights());
    }
  }
}

TEST_CASE("an epoch whose evaluation was cut is reported as if it had not been") {
  EpochReport whole, cut;
  {
    BarsRun run;
    run.options.epochs = 1;
    run.options.on_epoch = [&](const EpochReport& report) {
      whole = report;
      return true;
    };
    REQUIRE(run.trainer().run());
  }
  const TempFolder temp;
  double seconds = 0;
  {
    BarsRun first;
    first.options.epochs = 1;
    first.options.folder = std::make_shared<RunFolder>(temp.path + "/run", false);
    bool evaluates = false;  // true from the last step on
    first.options.on_step = [&](const StepReport& report) {
      evaluates = report.step == 10;
      return true;
    };
    first.options.stop = [&] { return evaluates; };
    Trainer trainer = first.trainer();
    CHECK(!trainer.run());
    CHECK(trainer.state().step == 10);
    seconds = trainer.state().seconds;
  }
  BarsRun second;
  second.options.epochs = 1;
  second.options.folder = std::make_shared<RunFolder>(temp.path + "/run", true);
  second.options.on_epoch = [&](const EpochReport& report) {
    cut = report;
    return true;
  };
  REQUIRE(second.trainer().run());
  CHECK(cut.lr == whole.lr);
  CHECK(cut.lr == 0.05);
  CHECK(cut.mean_bits == whole.mean_bits);
  CHECK(cut.mean_bits > 0);
  CHECK(cut.seconds == seconds);
  CHECK(cut.train_loss == whole.train_loss);
}

TEST_CASE("short epochs share a checkpoint; the last one and a stop write their own") {
  const auto checkpoints = [](double seconds, int64_t stop_after) {
    const TempFolder temp;
    BarsRun run;
    run.options.folder = std::make_shared<RunFolder>(temp.path + "/run", false);
    run.options.checkpoint_seconds = seconds;
    int64_t written = 0;
    run.options.on_checkpoint = [&](int64_t) { ++written; };
    run.options.on_epoch = [&](const EpochReport& report) { return report.epoch != stop_after; };
    CHECK(run.trainer().run() == (stop_after > 3));
    CHECK(run.options.folder->has_checkpoint());
    return written;
  };
  CHECK(checkpoints(0, 4) == 2);  // the last one is not counted
  CHECK(checkpoints(1e6, 4) == 0);
  CHECK(checkpoints(1e6, 2) == 1);
}

TEST_CASE("a run keeps to a memory budget that a planner of its own parts planned") {
  BarsRun run;
  plan(run, "1/4 activations");
  std::vector<std::string> kinds;
  run.options.on_event = [&](const Compression::Event& event, int64_t) {
    if (const auto* report = std::get_if<PlanReport>(&event)) kinds.emplace_back(report->kind);
  };
  Trainer trainer = run.trainer();
  const int64_t limit = trainer.compression().plan()->limit_bytes;
  CHECK(trainer.run());
  CHECK(trainer.state().memory.saved() <= limit);
  CHECK(trainer.state().memory.packed > 0);
  CHECK(!kinds.empty());  // it planned again with measured sensitivities
  BarsRun impossible;
  CHECK_THROWS_AS(plan(impossible, "100 B activations"), OptionError);
}

TEST_CASE("a trainer stops after max_seconds, between two steps, and another call goes on") {
  BarsRun run, whole;
  run.options.max_seconds = 1e-9;
  run.options.epochs = whole.options.epochs = 1;
  Trainer trainer = run.trainer();
  CHECK_FALSE(trainer.run());
  CHECK(trainer.state().step == 0);
  run.options.max_seconds = 1e6;
  CHECK(run.trainer().run());
  CHECK(whole.trainer().run());
  CHECK(run.weights() == whole.weights());
}

TEST_CASE("a trainer refuses options that say nothing or contradict each other") {
  TrainerOptions options;
  options.early_stop.patience = 2;
  CHECK(path_of_error(options) == "early_stop.patience");
  options = {};
  options.keep_best = 0;
  CHECK(path_of_error(options) == "trainer.keep_best");
  options = {};
  options.compression.choice = compress::bits(0);
  options.compression.tracking.emplace().guard = 0.1;
  CHECK(path_of_error(options) == "tracking.guard");
  CHECK(path_of_error({}).empty());

  // A planner, and options that it did not plan for.
  BarsRun planned;
  plan(planned, "1/4 activations");
  options = planned.options;
  options.freeze_epochs = 1;
  CHECK(path_of_error(options) == "trainer.freeze_epochs");
  planned.options.compression.choice = compress::bits(4);
  CHECK_THROWS_WITH_AS(
      planned.trainer(),
      "[compression] expected a budget policy beside a planner, got another policy", Error);
}
