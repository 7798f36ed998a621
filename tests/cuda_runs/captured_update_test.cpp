// Captured steps with their update: parameters, the optimizer's state and norms have the bits of
// steps that are run.
#include <algorithm>
#include <cmath>
#include <limits>

#include "apps/config/make_optimizer.h"
#include "autograd/functions.h"
#include "ops/dense/copy.h"
#include "optim/clip.h"
#include "optim/registry.h"
#include "optim/schedule.h"
#include "tests/cuda_runs/side.h"
#include "train/captured_step.h"

using namespace frugal;
using namespace frugal::apps;

namespace {

constexpr const char* kMlp = R"({
  "model": {"name": "mlp", "hidden": [40, 24], "dropout": 0.1},
  "data": {"name": "random", "batch_size": 8, "shape": [4, 4, 3], "train_samples": 40,
           "test_samples": 4},
  "compression": {"level": "L1", "advanced": {"min_elements": 96}}})";

// With what an optimizer has.
struct Trained : Side {
  std::unique_ptr<Optimizer> optimizer = make_optimizer(config, *model);
  std::vector<Variable> parameters;
  optim::SchedulePtr schedule = optim::warmup(optim::cosine_schedule(config.optim.lr, 0, 12), 3);

  Trained(const char* text, const std::string& sets) : Side(text, sets) {
    for (const auto& p : model->parameters()) parameters.push_back(*p.parameter);
  }
  StepUpdate update(uint64_t step) const {
    return {*optimizer, schedule->lr(static_cast<int64_t>(step)), true, config.train.clip_norm};
  }
  // As the trainer's: changed(batch) in place of a batch. Without `captured` a step that is run.
  template <class F>
  CapturedResult train(CapturedStep* captured, const F& changed) {
    return begin([&](Batch batch, Context& context, uint64_t step) {
      const StepUpdate wanted = update(step);
      CapturedResult result;
      if (captured != nullptr)
        result = captured->run(changed(std::move(batch)), context, {}, step, &wanted);
      else
        result.batch =
            forward_backward(*task, *model, changed(std::move(batch)), context, policy.get(), {});
      if (result.updated || !std::isfinite(result.batch.loss)) return result;
      result.norm = optim::clip_grad_norm_there(parameters, wanted.clip_norm).item();
      if (std::isfinite(result.norm)) optimizer->step(wanted.lr);
      return result;
    });
  }
  CapturedResult train(CapturedStep* captured) {
    return train(captured, [](Batch batch) { return batch; });
  }
  // Everything that a step changes.
  std::vector<Tensor> all(bool buffers = true) const {
    std::vector<Tensor> list;
    for (const Variable& p : parameters) list.push_back(to_device(p.value(), kCpu));
    for (const auto& [name, tensor] : optimizer->state())
      list.push_back(ops::clone(to_device(tensor, kCpu)));
    if (buffers)
      for (const auto& b : model->buffers()) list.push_back(ops::clone(to_device(*b.buffer, kCpu)));
    return list;
  }
};

Tensor numbers(const CapturedResult& result) {
  return Tensor::from<double>({result.batch.loss, result.norm}, {2});
}

}  // namespace

TEST_CASE("captured updates of every optimizer have the bits of updates that are run") {
  if (!gpu::available()) return;
  const std::string decay = " optim.weight_decay=0.1";
  std::vector<std::pair<const char*, std::string>> cases = {
      {kMlp, "optim.name=sgd optim.lr=0.05 optim.momentum=0.9 optim.nesterov=true"},
      {kMlp, "optim.name=sgd optim.lr=0.05 optim.momentum=0 optim.clip_norm=0.5"},
      {kMlp, "model.hidden=[128] optim.name=sgd_8bit optim.lr=0.05 optim.nesterov=true"},
      {kEncoder, "optim.name=adamw optim.lr=0.01 optim.clip_norm=0.1" + decay},
      {kEncoder, "optim.name=adamw_8bit optim.lr=0.01 optim.clip_norm=0.1" + decay},
      {kEncoder, "optim.name=lamb optim.lr=0.01 optim.ema=0.9" + decay},
      {kEncoder, "optim.name=lars optim.lr=0.5 optim.clip_norm=1" + decay},
      {kEncoder, "optim.name=adafactor optim.lr=0.01 optim.clip_norm=100" + decay},
      {kGraph, "optim.name=adam optim.lr=0.01 optim.ema=0.99" + decay}};
  for (const optim::Kind& kind : optim::kinds())
    if (std::none_of(cases.begin(), cases.end(), [&](const auto& each) {
          return (each.second + " ").find("=" + kind.name + " ") != std::string::npos;
        }))
      cases.emplace_back(kEncoder, "optim.name=" + kind.name + " optim.lr=0.001" + decay);
  for (const auto& [text, sets] : cases) {
    CAPTURE(sets);
    Trained run(text, sets), rerun(text, sets);
    CapturedStep captured(*rerun.task, *rerun.model, rerun.policy.get());
    for (int i = 0; i < 7; ++i) {
      CAPTURE(i);
      if (i == 4)  // what a checkpoint gives back lies elsewhere
        for (Trained* side : {&run, &rerun}) side->optimizer->load_state(side->optimizer->state());
      const CapturedResult expected = run.train(nullptr), got = rerun.train(&captured);
      CHECK(got.updated == (i > 0));
      CHECK(equal({numbers(expected)}, {numbers(got)}));
      CHECK(equal(run.all(), rerun.all()));
    }
    CHECK(captured.obstacle().empty());
    CHECK(captured.reruns() == 6);
  }
}

// A task may tell no targets: its pass holds none that a captured update could look at.
class MeanSquare final : public Task {
 public:
  ForwardPass loss(Module& net, Batch& batch, Context& context, const LossOptions&) const override {
    const Variable output = run(net, batch, context);
    ForwardPass pass;
    pass.loss = mean(mul(output, output));
    return pass;
  }
};

TEST_CASE("captured steps of a task without targets have the bits of steps that are run") {
  if (!gpu::available()) return;
  Trained run(kMlp, "optim.name=sgd optim.lr=0.1"), rerun(kMlp, "optim.name=sgd optim.lr=0.1");
  run.task = rerun.task = std::make_shared<MeanSquare>();
  CapturedStep captured(*rerun.task, *rerun.model, rerun.policy.get());
  for (int i = 0; i < 4; ++i) {
    const CapturedResult expected = run.train(nullptr), got = rerun.train(&captured);
    CHECK(got.updated == (i > 0));
    CHECK(equal({numbers(expected)}, {numbers(got)}));
    CHECK(equal(run.all(), rerun.all()));
  }
  CHECK(captured.obstacle().empty());
  CHECK(captured.reruns() == 3);
}

TEST_CASE("a rerun step that is not finite leaves parameters and the optimizer as they were") {
  if (!gpu::available()) return;
  for (const optim::Kind& kind : optim::kinds()) {
    const std::string& name = kind.name;
    CAPTURE(name);
    const std::string sets =
        fmt::format("optim.name={} optim.lr=0.01 optim.clip_norm=1 optim.ema=0.9", name);
    Trained run(kMlp, sets), rerun(kMlp, sets);
    CapturedStep captured(*rerun.task, *rerun.model, rerun.policy.get());
    for (int i = 0; i < 3; ++i) {
      run.train(nullptr);
      rerun.train(&captured);
    }
    const auto poisoned = [](Batch batch) {
      batch.input = ops::clone(batch.input);
      batch.input.mut<float>()[5] = std::numeric_limits<float>::quiet_NaN();
      return batch;
    };
    const std::vector<Tensor> before = rerun.all(false);
    const CapturedResult failed = rerun.train(&captured, poisoned);
    run.train(nullptr, poisoned);
    CHECK(failed.updated);
    CHECK_FALSE(std::isfinite(failed.batch.loss));
    CHECK(captured.reruns() == 3);
    CHECK(equal(before, rerun.all(false)));
    CHECK(equal(run.all(), rerun.all()));
    for (int i = 0; i < 2; ++i) {
      const CapturedResult expected = run.train(nullptr), got = rerun.train(&captured);
      CHECK(std::isfinite(got.norm));
      CHECK(equal({numbers(expected)}, {numbers(got)}));
      CHECK(equal(run.all(), rerun.all()));
    }
  }
}

TEST_CASE("a rerun batch in which no target counts has its update") {
  if (!gpu::available()) return;
  const std::string sets = "optim.name=adamw optim.lr=0.01 optim.weight_decay=0.1";
  Trained run(kEncoder, sets), rerun(kEncoder, sets);
  CapturedStep captured(*rerun.task, *rerun.model, rerun.policy.get());
  for (int i = 0; i < 5; ++i) {
    const auto changed = [&](Batch batch) {
      if (i == 3) batch.target = Tensor::full(batch.target.shape(), kIgnored, DType::i64);
      return batch;
    };
    const CapturedResult expected = run.train(nullptr, changed),
                         got = rerun.train(&captured, changed);
    CHECK((got.batch.counted == 0) == (i == 3));
    CHECK(equal({numbers(expected)}, {numbers(got)}));
    CHECK(equal(run.all(), rerun.all()));
  }
  CHECK(captured.reruns() == 4);
}

namespace {

// Counts its steps, and may do what captured ones must not.
class Foreign : public Optimizer {
 public:
  enum class Way { unknown, launches, grows };
  Foreign(Way way, Variable parameter) : way_(way), parameter_(std::move(parameter)) {}
  void step(double) override {
    ++steps_;
    if (way_ == Way::launches) ops::fill(parameter_.grad(), 0);
  }
  bool step_leaf(const GradAccumulator&, double) override { return false; }
  void zero_grad() override { parameter_.zero_grad(); }
  NamedTensors state() const override {
    NamedTensors state{{"steps", Tensor::from<int64_t>({steps_}, {})}};
    if (way_ == Way::grows) state.resize(static_cast<size_t>(steps_) + 1, state.front());
    return state;
  }
  void load_state(const NamedTensors& state) override {
    steps_ = static_cast<int64_t>(state.front().second.item());
  }
  bool capturable() const override { return way_ != Way::unknown; }
  void take_back() override { --steps_; }

 private:
  Way way_;
  Variable parameter_;
  int64_t steps_ = 0;
};

}  // namespace

TEST_CASE("what an optimizer must not do in a captured step is an obstacle, and undone") {
  if (!gpu::available()) return;
  const std::vector<std::pair<Foreign::Way, std::string>> cases = {
      {Foreign::Way::unknown, ""},
      {Foreign::Way::launches, "with_late"},
      {Foreign::Way::grows, "has its state before"}};
  for (const auto& [way, obstacle] : cases) {
    CAPTURE(obstacle);
    Trained run(kEncoder, "optim.lr=0.1"), rerun(kEncoder, "optim.lr=0.1");
    CapturedStep captured(*rerun.task, *rerun.model, rerun.policy.get());
    for (Trained* side : {&run, &rerun})
      side->optimizer = std::make_unique<Foreign>(way, side->parameters.front());
    for (int i = 0; i < 4; ++i) {
      CAPTURE(i);
      const CapturedResult expected = run.train(nullptr), got = rerun.train(&captured);
      CHECK_FALSE(got.updated);
      CHECK(equal({numbers(expected)}, {numbers(got)}));
      CHECK(equal(run.all(), rerun.all()));
    }
    // Forward and backward alone are rerun where nothing is known of the update.
    CHECK(captured.reruns() == (way == Foreign::Way::unknown ? 3 : 0));
    CHECK(captured.obstacle().empty() == obstacle.empty());
    CHECK(captured.obstacle().find(obstacle) != std::string::npos);
  }
}
