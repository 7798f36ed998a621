// Budgets of memory on CUDA: a step takes what was planned on meta, and runs stay within.
#include "apps/cli/training_run.h"
#include "apps/config/config.h"
#include "apps/config/data/make_data.h"
#include "apps/config/make_choice.h"
#include "apps/config/make_model.h"
#include "apps/config/make_optimizer.h"
#include "apps/config/make_task.h"
#include "apps/config/planned_run.h"
#include "apps/config/resolve.h"
#include "apps/config/set_up_device.h"
#include "apps/config/train_options.h"
#include "compress/policies/budget_policy.h"
#include "tests/apps/find_in.h"
#include "tests/cuda/gpu.h"
#include "train/planning/planner.h"

using namespace frugal;
using namespace frugal::apps;

namespace {

constexpr const char* kImages = R"({
  "model": {"name": "resnet20"},
  "data": {"name": "random", "batch_size": 4, "shape": [8, 8, 3], "train_samples": 16,
           "test_samples": 8, "workers": 0},
  "optim": {"lr": 0.05, "momentum": 0.9},
  "compression": {"advanced": {"min_elements": 256}, "gact": {"interval": 3}},
  "train": {"epochs": 1}})";

constexpr const char* kEncoder = R"({
  "model": {"name": "bert_tiny", "layers": 1, "width": 16, "heads": 2, "vocab_size": 60},
  "data": {"name": "random_tokens", "batch_size": 8, "max_length": 12, "classes": 3,
           "train_samples": 48, "test_samples": 8, "workers": 0},
  "compression": {"advanced": {"min_elements": 256}, "gact": {"interval": 4}},
  "train": {"epochs": 1}})";

Config config_of(const char* text, const std::string& budget,
                 const std::vector<std::string>& sets) {
  Json document = Json::parse(text);
  document["device"] = "cuda";
  document["workspace_limit"] = 0;  // the libraries' would be most of such small steps
  document["compression"]["memory_budget"] = budget;
  apply_sets(document, sets);
  Config config = parse_config(document);
  resolve(config);
  return config;
}

// The second step, as the trainer makes it.
StepMemory second_step(const Config& config, SavePolicy* policy) {
  const auto batches = make_batches(config, Split::train);
  const int64_t before = allocator(gpu::kCuda).report().live_total;
  const auto model = make_model(config, batch_spec(config), set_up_device(config.run));
  const auto optimizer = make_optimizer(config, *model);
  StepMemory memory;
  Rng rng(1);
  for (uint64_t step = 0; step < 2; ++step) {
    begin_peak(gpu::kCuda);
    Context context;
    context.rng = &rng;
    begin_step(step);
    memory =
        forward_backward(*make_task(config), *model, *batches->next(), context, policy, {}).memory;
    optimizer->step(0);
    end_peak(gpu::kCuda, memory);
    model->zero_grad();
  }
  memory.peak -= before;
  return memory;
}

}  // namespace

TEST_CASE("steps on CUDA take what was planned, within the budget") {
  if (!gpu::available()) return;
  // In bf16, parameters take a larger part of a step, so less can be saved.
  for (const auto& [precision, peak] : {std::pair{"f32", "1/1.04"}, std::pair{"bf16", "1/1.01"}})
    for (const char* budget : {peak, "1/2 activations", "1/6 activations"}) {
      CAPTURE(std::string(budget));
      CAPTURE(std::string(precision));
      const std::vector<std::string> sets = {std::string("precision=") + precision};
      const Config config = config_of(kImages, budget, sets);
      const Planner planner(planned_run(config).options);
      const auto policy = make_policy(make_choice(config.compression), kCpu, 1);
      planner.adopt(*find_in<compress::BudgetPolicy>(*policy));
      const StepMemory planned = planner.planned().memory;
      const StepMemory real = second_step(config, policy.get());
      CHECK(real.saved() <= planned.saved());
      CHECK(real.packed == planned.packed);
      CHECK(real.peak <= planned.peak + planner.reserve());
      if (planner.of_activations())
        CHECK(real.saved() <= planner.limit());
      else
        CHECK(real.peak <= planner.limit());
    }
}

TEST_CASE("runs on CUDA stay within a budget, rerun or not") {
  if (!gpu::available()) return;
  for (const char* graphs : {"cuda_graphs=false", "cuda_graphs=true"})
    for (const char* budget : {"1/2 activations", "1/4 activations"}) {
      CAPTURE(std::string(graphs));
      CAPTURE(std::string(budget));
      const Config config = config_of(kEncoder, budget, {graphs});
      const Planner planner(planned_run(config).options);
      TrainOptions options;
      options.quiet = true;
      const int64_t before = allocator(gpu::kCuda).report().live_total;
      const Json memory = TrainingRun(config, options).run()["memory"];
      const auto taken = planner.of_activations() ? memory["activation_bytes"].get<int64_t>()
                                                  : memory["peak_bytes"].get<int64_t>() - before;
      CHECK(taken <= planner.limit());
      CHECK(memory["packed_bytes"].get<int64_t>() > 0);
    }
}
