// CapturedStep: training steps as CUDA graphs. For each shape of batch, the first step is run as it
// is, the second is captured, and all later ones are rerun. Results have the bits of a run that
// captures nothing. Steps must be the same work every time: whoever changes what a policy decides
// calls forget(), and steps that a policy learns from are run elsewhere. A policy or codec that
// reads values on the host (ranges of samples and for error bounds, counts and lengths of an
// entropy stage) is an obstacle: then nothing is captured.
//
// A captured step has the forward pass, the backward pass and what follows the gradients: their
// norm, clipping, and the optimizer's step, whose rates and counts are sent anew
// (core/cuda/cuda_late.h). It has the two passes alone where no update is given, or where the
// optimizer is not capturable(); then the caller updates. Steps that accumulate gradients or update
// in the backward pass are not captured at all.
//
// A batch that its source holds (Batch::held), such as a whole graph, is captured as work of its
// own. A batch whose graph is sampled anew at each step is run. A captured step reads the tensors
// that the model made of a graph at their addresses, so a graph that the model has forgotten
// (models/graph_layers.h keeps two) must not be asked for again.
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
  bool norm = true;      // the gradients' norm is measured
  double clip_norm = 0;  // above 0: gradients of a larger norm are scaled to it
};

struct CapturedResult {
  BatchResult batch;
  bool updated = false;  // the step made the update; else the caller makes it
  double norm = 0;       // the gradients' norm, if the update measured it
};

class CapturedStep {
 public:
  CapturedStep(const Task& task, Module& model, SavePolicy* policy);
  ~CapturedStep();

  // Computes what forward_backward() computes after begin_step(number), and then the update. A loss
  // or norm that is not finite leaves parameters and the optimizer as they were; gradients may be
  // clipped. Work that cannot be captured is run. REQUIRES: gradients were dropped, options.weight
  // and leaf_done are as they are by default, and update->optimizer is the same at every call.
  CapturedResult run(Batch batch, Context& context, const PassOptions& options, uint64_t number,
                     const StepUpdate* update = nullptr);
  void forget();
  int64_t reruns() const { return reruns_; }
  const std::string& obstacle() const { return obstacle_; }  // why nothing is captured, or empty

 private:
  struct Entry;
  void capture(Entry& entry, Batch batch, Context& context, const PassOptions& options,
               uint64_t number, const StepUpdate* update);
  void capture_passes(Entry& entry, Context& context, const PassOptions& options);
  CapturedResult rerun(Entry& entry, const Batch& batch, Context& context, uint64_t number,
                       const StepUpdate* update);

  const Task& task_;
  Module& model_;
  SavePolicy* policy_;
  std::map<std::string, std::unique_ptr<Entry>> entries_;  // the keys name the shapes of a batch
  int64_t reruns_ = 0;
  std::string obstacle_;
};

}  // namespace frugal::train
