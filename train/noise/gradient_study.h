// GradientStudy: how noisy the gradient of a run is, and what a policy adds to its noise and to its
// mean. Ref: Chen et al. 2021 (ActNN), section 6.1, "gradient variance", and theorem 3.
//
//   GradientStudy study(recipe);
//   study.train(400);                       // activations of a network that learns
//   study.begin(32);                        // the variance between 32 minibatches
//   GradientErrors found = study.measure(policy, 64);
//   found.rounding.value / found.unit();    // what 64 roundings of one batch vary
//
// Several roundings of one batch are compared with one pass that keeps everything whole. Variance
// and bias are told apart (train/noise/gradient_noise.h).
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "train/noise/gradient_noise.h"
#include "train/noise/gradient_probe.h"
#include "train/run/run.h"

namespace frugal::train {

// Squared norms of errors of the gradient of some parameters, and of the gradient itself.
struct GradientErrors {
  double square = 0;      // |gradient|^2 of the batch, kept whole
  Estimate minibatch;     // the variance between minibatches; 0: a whole graph is the only one
  Estimate rounding;      // the variance between roundings of the batch
  Estimate squared_bias;  // how far their mean is off; negative at times

  bool has_minibatches() const { return minibatch.value > 1e-9 * square; }
  // What the errors are compared with: the variance between minibatches, else `square`.
  double unit() const { return has_minibatches() ? minibatch.value : square; }
  // How a text names this unit.
  const char* unit_name() const {
    return has_minibatches() ? "the variance of the gradient between minibatches"
                             : "the squared gradient of the only batch";
  }
};

// The errors of all parameters, and of those of each layer.
struct LayeredErrors : GradientErrors {
  std::vector<GradientErrors> layers;  // as GradientStudy::layers()
  StepMemory memory;                   // what the last rounding took
};

// What the rounding of one layer's tensors adds to the variance of the gradient, with the gradients
// that come from the layers behind it as noisy as they are: a term of theorem 3.
struct RoundedLayer {
  int64_t packed = 0;        // tensors that are packed
  Estimate from;             // what they add
  std::vector<double> into;  // the parts of it, by the layer of the parameters
};

// Thread safety: none.
class GradientStudy {
 public:
  explicit GradientStudy(RunRecipe recipe);  // one on the CPU

  // Steps at the recipe's `lr` that keep everything whole.
  void train(int64_t steps);
  // A batch of the size of the first one. What cannot be cut, such as a graph, comes as it is.
  Batch next();
  // The gradients of a batch, of all parameters one after the other. start: the state of dropout's
  // generator. checkpointed_blocks: see Context.
  std::vector<float> gradient(const Batch& batch, SavePolicy* policy, uint64_t step, RngKey start,
                              int64_t checkpointed_blocks = 0);
  // Passes of steps 0 to kLearning - 1 give a policy what it decides by. Returns the last batch.
  // These passes and those that are measured recompute the recipe's checkpointed blocks.
  Batch let_learn(SavePolicy& policy);

  // Measures the variance between `minibatches` (0: it does not; else at least
  // GradientNoise::kGroups), and draws the batch that is rounded. parts: how many parts of layers'
  // names tell layers apart; 0: all. Dropout is alike in all passes that follow.
  void begin(int64_t minibatches, int64_t parts = 0);
  // REQUIRES (these): begin(). draws: roundings, at least GradientNoise::kGroups.
  // checkpointed_blocks: others than the recipe's.
  LayeredErrors measure(SavePolicy& policy, int64_t draws,
                        std::optional<int64_t> checkpointed_blocks = {});
  // What each layer's tensors add, by half of `draws` pairs of roundings. Layers that have tensors
  // and no parameters are added to layers(). The policy knows afterwards what it knew before.
  // Errors: a policy that packs recomputed blocks, where there are some.
  std::vector<RoundedLayer> measure_by_source(SavePolicy& policy, int64_t draws);

  const GradientLayers& layers() const { return layers_; }
  const Batch& batch() const { return batch_; }
  const StepMemory& whole_memory() const { return whole_memory_; }  // what the pass kept whole took
  RngKey rng() const { return run_.rng_state(); }
  int64_t checkpointed_blocks() const { return checkpointed_blocks_; }  // the recipe's
  Module& model() { return run_.model(); }
  const Task& task() const { return run_.task(); }

  static constexpr int64_t kLearning = 16;

 private:
  PassSettings pass(uint64_t step, RngKey start, int64_t checkpointed_blocks = 0) const {
    return {step, start, smoothing_, checkpointed_blocks};
  }
  double smoothing_, lr_;
  int64_t checkpointed_blocks_;
  Run run_;
  GradientProbe probe_;
  int64_t batch_size_ = 0;  // the size of the first batch
  // Since begin(). `errors_` has no rounding.
  int64_t parts_ = 0;
  RngKey key_;
  GradientLayers layers_;
  Batch batch_;
  std::vector<float> exact_;
  StepMemory whole_memory_;
  LayeredErrors errors_;
};

}  // namespace frugal::train
