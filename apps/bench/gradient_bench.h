// A network of a configuration, trained for a while, whose gradients benchmarks compare.
#pragma once
#include <memory>
#include <vector>

#include "apps/config/config.h"
#include "train/gradient_probe.h"
#include "train/run/run.h"

namespace frugal::apps {

class GradientBench {
 public:
  explicit GradientBench(const Config& config);  // Errors: a device other than cpu

  // Some steps of plain training, so that activations look like those of a network that learns.
  void train(int64_t steps);
  Batch next();  // a whole one
  // The gradients of the whole batch, of all parameters one after the other. `start`: the state of
  // the generator. checkpointed_blocks: see Context.
  std::vector<float> gradient(const Batch& batch, SavePolicy* policy, uint64_t step, RngKey start,
                              int64_t checkpointed_blocks = 0);
  // Steps like those of training give the policy what it decides by. `config`: the policy's, which
  // differs from the network's only in its section compression. REQUIRES: resolved.
  void let_learn(SavePolicy& policy, const Config& config, RngKey start);
  // What a step saves under `policy`, with the layers.
  std::vector<SavedRecord> saved(const Batch& batch, SavePolicy& policy, uint64_t step,
                                 RngKey start);
  // The variance of the gradient between minibatches, around its mean.
  double minibatch_variance(int64_t batches, RngKey start);

  const StepMemory& memory() const { return probe_.memory(); }  // what the last gradient() took
  RngKey rng() const { return run_.rng_state(); }
  Module& model() { return run_.model(); }
  const train::Task& task() const { return run_.task(); }

 private:
  train::StepReplay pass(uint64_t step, RngKey start, int64_t checkpointed_blocks = 0) const {
    return {step, start, config_.train.label_smoothing, checkpointed_blocks};
  }
  Config config_;
  train::Run run_;
  train::GradientProbe probe_;
};

}  // namespace frugal::apps
