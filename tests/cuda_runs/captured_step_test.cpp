// Steps that are rerun beside the same steps run: which are captured, and every gradient's bits.
#include "train/captured_step.h"
#include "apps/config/make_optimizer.h"
#include "compress/policies/fixed_policy.h"
#include "ops/dense/copy.h"
#include "tests/apps/find_in.h"
#include "tests/cuda_runs/side.h"
#include "train/tasks/make_task.h"

using namespace frugal;
using namespace frugal::apps;

TEST_CASE("rerun steps with packed activations give the gradients of steps that are run") {
  if (!gpu::available()) return;
  const std::vector<std::pair<const char*, std::string>> cases = {
      {kEncoder, "compression.level=L1"},
      {kEncoder, "compression.advanced.signs=masks"},
      {kEncoder, "compression.advanced.rounding=dithered"},
      {kImages, "compression.level=L1.2"}};
  for (const auto& [text, set] : cases) {
    CAPTURE(set);
    Side run(text, set), rerun(text, set);
    CapturedStep captured(*rerun.task, *rerun.model, rerun.policy.get());
    for (int i = 0; i < 6; ++i) {
      CAPTURE(i);
      if (i == 3) {  // another plan: what was captured is of no use
        for (Side* side : {&run, &rerun})
          find_in<compress::FixedPolicy>(*side->policy)->set_bits(3);
        captured.forget();
      }
      const auto expected = run.step([&](Batch batch, Context& context, uint64_t) {
        return forward_backward(*run.task, *run.model, std::move(batch), context, run.policy.get(),
                                {});
      });
      const auto got = rerun.step([&](Batch batch, Context& context, uint64_t number) {
        return captured.run(std::move(batch), context, {}, number).batch;
      });
      CHECK(equal(expected, got));
    }
    CHECK(captured.obstacle().empty());
    CHECK(captured.reruns() == 4);  // the first of each three is run, not rerun
  }
}

TEST_CASE("the host waits once in a rerun step, and reads loss, counts and norm") {
  if (!gpu::available() || !gpu::emulated()) return;  // a GPU counts no waits
  Side side(kEncoder, "compression.level=L1");
  const auto optimizer = make_optimizer(side.config, *side.model);
  CapturedStep captured(*side.task, *side.model, side.policy.get());
  for (int i = 0; i < 5; ++i) {
    CAPTURE(i);
    const StepUpdate update{*optimizer, 0.01, true, 1};
    side.begin([&](Batch batch, Context& context, uint64_t number) {
      const int64_t before = emulator::waits();
      const CapturedResult result = captured.run(std::move(batch), context, {}, number, &update);
      if (i >= 2) {
        CHECK(emulator::waits() - before == 1);
        CHECK(result.updated);
        CHECK(result.norm > 0);
        CHECK(result.batch.loss > 0);
        CHECK(result.batch.counted == 8);
      }
      // Captured work needs the optimizer's state, which its first step makes.
      if (!result.updated) optimizer->step(update.lr);
      return 0;
    });
  }
  CHECK(captured.obstacle().empty());
  CHECK(captured.reruns() == 4);
}

TEST_CASE("steps of a held graph are rerun, of classes and of several labels") {
  if (!gpu::available()) return;
  Tensor several = Tensor::empty({120, 3}, DType::f32);
  for (int64_t i = 0; i < several.numel(); ++i)
    several.mut<float>()[i] =
        i / 3 % 4 == 0 ? static_cast<float>(kIgnored) : static_cast<float>(i % 5 % 2);
  for (const Tensor& labels : {Tensor(), several}) {
    CAPTURE(labels.defined());
    Side run(kGraph, "optim.lr=0.1"), rerun(kGraph, "optim.lr=0.1");
    if (labels.defined())
      for (Side* side : {&run, &rerun}) {
        train::BatchSpec spec = side->task->spec();
        spec.target = train::BatchSpec::Target::labels;
        side->task = train::make_task(spec);
      }
    CapturedStep captured(*rerun.task, *rerun.model, rerun.policy.get());
    for (int i = 0; i < 4; ++i) {
      CAPTURE(i);
      const auto expected = run.step([&](Batch batch, Context& context, uint64_t) {
        if (labels.defined()) batch.target = labels;
        return forward_backward(*run.task, *run.model, std::move(batch), context, run.policy.get(),
                                {});
      });
      const auto got = rerun.step([&](Batch batch, Context& context, uint64_t number) {
        if (labels.defined()) batch.target = labels;
        return captured.run(std::move(batch), context, {}, number).batch;
      });
      CHECK(equal(expected, got));
      CHECK(expected[0].item(1) == (labels.defined() ? 270 : expected[0].item(1)));
      CHECK(expected[0].item(1) > 0);
    }
    CHECK(captured.obstacle().empty());
    CHECK(captured.reruns() == 3);
  }
}

TEST_CASE(
    "a batch on CUDA carries a mask only where it hides something, and counts its nodes once") {
  if (!gpu::available()) return;
  const Side text(kEncoder, "optim.lr=0.1"), graph(kGraph, "optim.lr=0.1");
  for (const int64_t shown : {5, 6}) {
    Batch batch;
    batch.input = Tensor::full({2, 6}, 3, DType::i64);
    batch.target = Tensor::zeros({2}, DType::i64);
    Tensor mask = Tensor::zeros({2, 6}, DType::i64);
    for (int64_t i = 0; i < 12; ++i) mask.mut<int64_t>()[i] = i % 6 < shown ? 1 : 0;
    batch.extras = {{"attention_mask", mask}};
    const Batch there = text.task->place(batch, *text.model);
    CHECK(there.input.device() == gpu::kCuda);
    CHECK(there.input.to_vector() == batch.input.to_vector());
    CHECK(find_tensor(there.extras, "attention_mask").defined() == (shown == 5));
  }
  const Batch whole = *graph.batches->next();
  REQUIRE(whole.held);
  const Batch one = graph.task->place(whole, *graph.model),
              two = graph.task->place(whole, *graph.model);
  CHECK(one.input.storage() == two.input.storage());
  CHECK(one.target.storage() == two.target.storage());
  CHECK(find_tensor(one.extras, "edge_index").device() == kCpu);
  const Tensor counted = find_tensor(one.extras, "counted_target");
  REQUIRE(counted.defined());
  CHECK(counted.storage() == find_tensor(two.extras, "counted_target").storage());
  for (const double target : counted.to_vector()) CHECK(target >= 0);
}

TEST_CASE("what the host reads in a step is an obstacle, by name") {
  if (!gpu::available()) return;
  // Tensors are large enough to be coded.
  Side side(kEncoder, "compression.entropy=true data.batch_size=64 model.width=64");
  CapturedStep captured(*side.task, *side.model, side.policy.get());
  for (int i = 0; i < 3; ++i)
    side.step([&](Batch batch, Context& context, uint64_t number) {
      return captured.run(std::move(batch), context, {}, number).batch;
    });
  CHECK(captured.reruns() == 0);
  CHECK(captured.obstacle().starts_with("[entropy] expected work that is run"));
}
