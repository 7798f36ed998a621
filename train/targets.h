// Which of a graph's nodes a loss is made of, on the host.
#pragma once
#include "core/tensor.h"

namespace frugal::train {

// Is each class a question of its own? Then targets are [rows, C] f32 of 0 and 1, kIgnored in rows
// that do not count, and not [...] i64.
bool has_several_labels(const Tensor& target);

// The nodes whose targets count, where the others are most (of several labels: always); else rows
// is undefined, and target and weights are those of all nodes.
struct CountedNodes {
  Tensor rows;  // [K] i64
  Tensor target, weights;
};
// target as above; weights [rows] f32 or undefined; all on the host.
CountedNodes counted_nodes(const Tensor& target, const Tensor& weights);

}  // namespace frugal::train
