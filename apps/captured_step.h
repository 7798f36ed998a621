// Training steps as CUDA graphs: of each shape of batch the first is run as it is, the second
// recorded, and all others replayed, with the bits of a run without. For steps that are the same
// work every time: whoever changes what a policy decides calls forget(), and steps that a policy
// learns from are run elsewhere. What a policy or codec reads on the host (ranges of samples and
// for error bounds, counts and lengths of an entropy stage) is an obstacle.
//
// Graphs: those that their source holds, of which each is work of its own; what is sampled anew at
// each step is run. Addresses of what the model made of a graph are recorded, so a graph that it
// has forgotten (models/graph_layers.h keeps two) must not be asked for again.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/training_step.h"
#include "core/rng.h"

namespace frugal::apps {

class CapturedStep {
 public:
  CapturedStep(Module& model, SavePolicy* policy);
  ~CapturedStep();

  // As forward_backward() with step `number` begun. REQUIRES: gradients were dropped, and
  // options.weight and leaf_done are as they are by default. Work that cannot be recorded is run.
  BatchResult run(Batch batch, Context& context, const StepOptions& options, uint64_t number);
  void forget();
  int64_t replays() const { return replays_; }
  const std::string& obstacle() const { return obstacle_; }  // why nothing is recorded, or empty

 private:
  struct Entry;
  void record(Entry& entry, Batch batch, Context& context, const StepOptions& options,
              uint64_t number);
  BatchResult replay(Entry& entry, const Batch& batch, Context& context, uint64_t number);

  Module& model_;
  SavePolicy* policy_;
  std::map<std::string, std::unique_ptr<Entry>> entries_;  // by the shapes of a batch
  int64_t replays_ = 0;
  std::string obstacle_;
};

}  // namespace frugal::apps
