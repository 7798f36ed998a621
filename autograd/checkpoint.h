// Gradient checkpointing: the forward pass makes one node, whose slots are the inputs, and backward
// computes everything else again.
#pragma once
#include <functional>

#include "autograd/variable.h"
#include "core/rng.h"

namespace frugal {

// f(inputs), which backward computes again. Inputs may be undefined. f may release an input early:
// while it is computed again from packed inputs, nobody else holds them. The result is recorded if
// an input needs a gradient, or an op inside f got something that does, such as a parameter. Else
// nothing is saved. If f draws from `rng`, the recomputation draws the same numbers; afterwards
// `rng` is in the state that it had before.
// Saves: the inputs, without loss, through the policy, which may move them. What the recomputation
// saves is kept raw. A policy that packs_recomputed() packs both, as it packs other activations.
// f is then computed from rounded inputs, so its gradient is biased where f is not linear.
Variable checkpoint(const std::function<Variable(Variables)>& f, const Variables& inputs,
                    Rng* rng = nullptr);

// True inside a recomputation. Layers ask, so that they do not update running statistics twice.
bool recomputing();

// While this lives, recomputing() is true: for recomputations, and for any forward pass that must
// leave no trace in the layers.
class RecomputeScope {
 public:
  RecomputeScope();
  ~RecomputeScope();
  RecomputeScope(const RecomputeScope&) = delete;
  RecomputeScope& operator=(const RecomputeScope&) = delete;
};

}  // namespace frugal
