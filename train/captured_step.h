// Training steps as CUDA graphs: of each shape of batch the first is run as it is, the second
// recorded, and all others replayed, with the bits of a run without. For steps that are the same
// work every time: whoever changes what a policy decides calls forget(), and steps that a policy
// learns from are run elsewhere. What a policy or codec reads on the host (ranges of samples and
// for error bounds, counts and lengths of an entropy stage) is an obstacle.
//
// Recorded are forward, backward and what follows the gradients: their norm, clipping, and the
// optimizer's step, whose rates and counts are sent anew (core/cuda/cuda_late.h). Forward and
// backward alone, with the update left to the caller, where no update is given and where the
// optimizer is not recordable(). Accumulated gradients and updates in backward are not recorded at
// all.
//
// Graphs: those that their source holds, of which each is work of its own; what is sampled anew at
// each step is run. Addresses of what the model made of a graph are recorded, so a graph that it
// has forgotten (models/graph_layers.h keeps two) must not be asked for again.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/rng.h"
#include "optim/optimizer.h"
#include "train/training_step.h"

namespace frugal::train {

// What follows the gradients of a step.
struct StepUpdate {
  Optimizer& optimizer;
  double lr = 0;
  bool norm = true;      // the gradients' is measured
  double clip_norm = 0;  // above 0: they are scaled to it
};

struct CapturedResult {
  BatchResult batch;
  bool updated = false;  // the update was part of the work; else it is the caller's
  double norm = 0;       // where it was measured in an update
};

class CapturedStep {
 public:
  CapturedStep(const Task& task, Module& model, SavePolicy* policy);
  ~CapturedStep();

  // As forward_backward() with step `number` begun, and the update behind it. A loss or norm that
  // is not finite leaves parameters and the optimizer as they were, clipped gradients aside. Work
  // that cannot be recorded is run. REQUIRES: gradients were dropped, options.weight and leaf_done
  // are as they are by default, and update->optimizer is the same at every call.
  CapturedResult run(Batch batch, Context& context, const PassOptions& options, uint64_t number,
                     const StepUpdate* update = nullptr);
  void forget();
  int64_t replays() const { return replays_; }
  const std::string& obstacle() const { return obstacle_; }  // why nothing is recorded, or empty

 private:
  struct Entry;
  void record(Entry& entry, Batch batch, Context& context, const PassOptions& options,
              uint64_t number, const StepUpdate* update);
  void record_passes(Entry& entry, Context& context, const PassOptions& options);
  CapturedResult replay(Entry& entry, const Batch& batch, Context& context, uint64_t number,
                        const StepUpdate* update);

  const Task& task_;
  Module& model_;
  SavePolicy* policy_;
  std::map<std::string, std::unique_ptr<Entry>> entries_;  // by the shapes of a batch
  int64_t replays_ = 0;
  std::string obstacle_;
};

}  // namespace frugal::train
