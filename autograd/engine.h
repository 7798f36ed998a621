// The backward pass. Single thread, re-entrant, no double backward.
#pragma once
#include <functional>

#include "autograd/observer.h"
#include "autograd/variable.h"

namespace frugal {

// Told of a leaf when its gradient is complete; may use it up, drop it and write the leaf's value.
using LeafFn = std::function<void(GradAccumulator& leaf)>;

// Adds d(root)/d(leaf) to every leaf's gradient and frees each node's slots right after use.
// dy: [root's shape], default ones; a root with more than one element needs it.
// Errors: root outside any graph; a graph that was already walked (its slots are gone);
// with leaf_done, a checkpoint in the graph: its recomputation needs leaves that nobody else shows.
// observer: shown every op's gradients, which then come whole, and not in slices.
void backward(const Variable& root, const Tensor& dy = {}, const LeafFn& leaf_done = {},
              BackwardObserver* observer = nullptr);

// The names of the ops reachable from root, newest first. For tests and reports.
std::vector<const char*> graph_ops(const Variable& root);

}  // namespace frugal
