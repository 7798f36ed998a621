// Gradient checkpointing: forward without a graph, one node whose slots are the inputs,
// recomputation in backward.
#pragma once
#include <functional>

#include "autograd/variable.h"
#include "core/rng.h"

namespace frugal {

// f(inputs), recomputed in backward. Inputs may be undefined. Saves: the inputs without loss,
// through the policy, which may move them; saves of the recomputation are raw. It records even if
// no input needs a gradient, because parameters inside f may. `rng`, when f draws from one, is put
// back to its state at the first run for the recomputation and then restored.
Variable checkpoint(const std::function<Variable(const Variables&)>& f, const Variables& inputs,
                    Rng* rng = nullptr);

// True inside a recomputation: layers must not update running statistics twice.
bool recomputing();

// A recomputation, or any forward pass that must leave no trace in the layers, while it lives.
class RecomputeScope {
 public:
  RecomputeScope();
  ~RecomputeScope();
  RecomputeScope(const RecomputeScope&) = delete;
  RecomputeScope& operator=(const RecomputeScope&) = delete;
};

}  // namespace frugal
