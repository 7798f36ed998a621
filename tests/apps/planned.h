// Steps that planners plan, and the same as they are.
#pragma once
#include <string>
#include <vector>

#include "apps/config/make_data.h"
#include "apps/config/make_model.h"
#include "apps/config/make_optimizer.h"
#include "apps/config/resolve.h"
#include "tests/train/task_of.h"
#include "train/planning/planner.h"

namespace frugal::apps {

inline constexpr const char* kResNet = R"({
  "model": {"name": "resnet20", "shortcut": "A"},
  "data": {"name": "random", "shape": [16, 16, 3], "classes": 4, "batch_size": 32,
           "train_samples": 64, "test_samples": 32, "workers": 0},
  "compression": {"advanced": {"min_elements": 1024}}})";

inline Config config_of(const char* text, const std::string& budget,
                        const std::vector<std::string>& sets = {}) {
  Json document = Json::parse(text);
  document["compression"]["memory_budget"] = budget;
  apply_sets(document, sets);
  Config config = parse_config(document);
  resolve(config);
  return config;
}

struct Took {
  StepMemory memory;
  std::vector<float> gradients;
};

// The second step on the CPU, as the trainer makes it.
inline Took real_step(const Config& config, SavePolicy* policy) {
  const auto batches = make_batches(config, Split::train);
  const int64_t before = allocator(kCpu).report().live_total;
  const auto model = make_model(config, batch_spec(config), kCpu);
  const auto optimizer = make_optimizer(config, *model);
  Took took;
  Rng rng(1);
  for (uint64_t step = 0; step < 2; ++step) {
    begin_peak(kCpu);
    Context context;
    context.rng = &rng;
    context.checkpointed_blocks = checkpointed_blocks(config.train);
    begin_step(step);
    const Batch kept = *batches->next();
    took.memory = forward_backward(task_of(kept), *model, kept, context, policy, {}).memory;
    took.gradients.clear();
    for (const auto& p : model->parameters()) {
      const Tensor g = p.parameter->grad();
      took.gradients.insert(took.gradients.end(), g.data<float>(), g.data<float>() + g.numel());
    }
    optimizer->step(0);
    end_peak(kCpu, took.memory);
    model->zero_grad();
  }
  took.memory.peak -= before;
  return took;
}

}  // namespace frugal::apps
