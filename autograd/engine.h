// The backward pass. Single thread, re-entrant, no double backward.
#pragma once
#include "autograd/variable.h"

namespace frugal {

// Adds d(root)/d(leaf) to every leaf's gradient and frees each node's slots right after use.
// dy: [root's shape], default ones; a root with more than one element needs it.
// Errors: root outside any graph; a graph that was already walked (its slots are gone).
void backward(const Variable& root, const Tensor& dy = {});

// The names of the ops reachable from root, newest first. For tests and reports.
std::vector<const char*> graph_ops(const Variable& root);

}  // namespace frugal
