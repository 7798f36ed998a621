// The backward pass. Thread safety: a graph belongs to one thread. A backward function may run
// another backward pass. There is no double backward.
#pragma once
#include <functional>

#include "autograd/observer.h"
#include "autograd/variable.h"

namespace frugal {

// Called with a leaf when its gradient is complete. It may use the gradient, drop it and write the
// value of the leaf.
using LeafFn = std::function<void(GradAccumulator& leaf)>;

// Adds d(root)/d(leaf) to the gradient of every leaf. Frees the slots of each node right after use.
// dy: [root's shape], by default ones; a root of several elements needs one. A dy that is moved in,
// whose bytes nobody else holds, may be written over.
// observer: is shown the gradients of every op, which then come whole and not in slices.
// Errors: a root outside of any graph; a graph that a backward pass walked before, whose slots are
// gone; with leaf_done, a checkpoint in the graph, whose recomputation uses leaves that no edge
// shows.
void backward(const Variable& root, Tensor dy = {}, const LeafFn& leaf_done = {},
              BackwardObserver* observer = nullptr);

// The names of the ops reachable from root, newest first. For tests and reports.
std::vector<const char*> graph_ops(const Variable& root);

}  // namespace frugal
