// Networks that plans are made for, and their steps as they are.
#pragma once
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "compress/policies/choice.h"
#include "core/random/draws.h"
#include "models/registry.h"
#include "optim/optimizers.h"
#include "train/planning/planned_run.h"
#include "train/policy_parts.h"
#include "train/tasks/make_task.h"
#include "train/training_step.h"

namespace frugal::train {

// A network with batches of random values.
struct PlannedCase {
  std::string network;
  models::Options options;
  BatchSpec spec;
  int64_t batch = 32;
  bool has_blocks = true;
  int64_t least_elements = 1024;  // smaller tensors are not packed

  compress::Choice bits(double bits) const {
    return compress::bits(bits, {.min_elements = least_elements});
  }
  compress::Choice budget(const std::string& memory) const {
    return compress::budget(memory, {.min_elements = least_elements});
  }
  std::shared_ptr<Module> make(Device device, const models::Options& more = {}) const {
    models::Init init;
    init.device = device;
    models::Options all = more;
    all.insert(options.begin(), options.end());
    return models::make(network, all, init);
  }
  static std::unique_ptr<Optimizer> optimizer(Module& model) {
    return std::make_unique<optim::Sgd>(model.parameters(), optim::SgdOptions{.momentum = 0.9});
  }
  // A plan of a step that keeps activations so.
  PlannerOptions with(const compress::Choice& choice) const {
    PlannerOptions planner;
    planner.run.make_model = [own = *this](Device device) { return own.make(device); };
    planner.run.make_optimizer = &optimizer;
    planner.run.task = make_task(spec);
    planner.run.has_blocks = has_blocks;
    planner.run.in_backward = false;  // real_step() keeps its gradients
    planner.choice = choice;
    if (const std::string memory = choice.memory_budget(); !memory.empty())
      planner.budget = parse_budget(memory, "compression.memory_budget");
    planner.batch = planner.test_batch = batch;
    return planner;
  }
  PlannerOptions within(const std::string& memory) const { return with(budget(memory)); }
  // A batch whose values depend on `step`.
  Batch batch_of(uint64_t step) const {
    const CategoryScope scope(Category::input);
    Batch made = make_task(spec)->shape(batch, kCpu);
    if (is_floating(made.input.dtype())) {
      made.input = Tensor::randn(made.input.shape(), {step, 0});
    } else {
      auto* ids = made.input.mut<int64_t>();
      for (int64_t i = 0; i < made.input.numel(); ++i)
        ids[i] = static_cast<int64_t>(uniform_int({step, 0}, static_cast<uint64_t>(i),
                                                  static_cast<uint64_t>(spec.vocabulary)));
    }
    auto* targets = made.target.mut<int64_t>();
    for (int64_t i = 0; i < made.target.numel(); ++i) targets[i] = i % spec.classes;
    if (made.samples.defined())
      for (int64_t i = 0; i < batch; ++i) made.samples.mut<int64_t>()[i] = i;
    return made;
  }
};

// A small ResNet-20, a perceptron, and small transformers.
inline PlannedCase planned_resnet() {
  return {"resnet20", {{"num_classes", 4}, {"shortcut", "A"}}, {{16, 16, 3}, 4}};
}
inline PlannedCase planned_mlp() {
  return {"mlp",
          {{"in_features", 64},
           {"num_classes", 4},
           {"hidden", std::vector<int64_t>{256, 256, 128}},
           {"dropout", 0.1}},
          {{8, 8, 1}, 4},
          256,
          false};
}
inline PlannedCase planned_bert() {
  BatchSpec spec{{64}, 3, BatchSpec::Kind::sequences};
  spec.vocabulary = 500;
  return {"bert_tiny",
          {{"layers", 2}, {"width", 64}, {"heads", 2}, {"vocab_size", 500}, {"num_classes", 3}},
          spec};
}
inline PlannedCase planned_gpt(int64_t layers, int64_t width, int64_t vocabulary) {
  BatchSpec spec{{64}, vocabulary, BatchSpec::Kind::sequences, BatchSpec::Target::class_of_token};
  spec.vocabulary = vocabulary;
  return {"gpt2",
          {{"layers", layers}, {"width", width}, {"heads", 2}, {"vocab_size", vocabulary}},
          spec,
          16};
}

struct TookStep {
  StepMemory memory;
  std::vector<float> gradients;
};

// The second step on the CPU, as the trainer makes it.
inline TookStep real_step(const PlannedCase& planned, SavePolicy* policy, int64_t blocks = 0) {
  const TaskPtr task = make_task(planned.spec);
  const int64_t before = allocator(kCpu).report().live_total;
  const auto model = planned.make(kCpu);
  const auto optimizer = PlannedCase::optimizer(*model);
  TookStep took;
  Rng rng(1);
  for (uint64_t step = 0; step < 2; ++step) {
    begin_peak(kCpu);
    Context context;
    context.rng = &rng;
    context.checkpointed_blocks = blocks;
    begin_step(step);
    const Batch kept = planned.batch_of(step);
    took.memory = forward_backward(*task, *model, kept, context, policy, {}).memory;
    took.gradients.clear();
    for (const auto& p : model->parameters()) {
      const Tensor g = p.parameter->grad();
      took.gradients.insert(took.gradients.end(), g.data<float>(), g.data<float>() + g.numel());
    }
    optimizer->step(0);
    model->zero_grad();
    end_peak(kCpu, took.memory);
  }
  took.memory.peak -= before;
  return took;
}

}  // namespace frugal::train
