// Partitions of a graph's nodes into clusters of about equal size with few edges between them.
#pragma once
#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace frugal::data {

struct PartitionOptions {
  int64_t parts = 2;
  double slack = 0.05;  // a part holds at most (1 + slack) nodes / parts, rounded up
  int passes = 10;      // of refinement, fewer once nothing moves
  uint64_t seed = 0;    // of the first nodes
};

// The part of each node, in [0, parts), none empty. All parts grow from random nodes, the smallest
// next, by the node with the most edges into it; then nodes move where most of their edges go, as
// far as the sizes allow. Depends on the edges and the seed alone. Time O(E log E).
// edge_index [2, E] i64, in both directions.  Errors: parts outside [1, nodes], slack < 0.
// Ref: Karypis and Kumar 1998 (greedy growing, boundary refinement); Chiang et al. 2019.
std::vector<int32_t> partition(const Tensor& edge_index, int64_t nodes,
                               const PartitionOptions& options);

// Edges (from, to) between different parts.
int64_t edge_cut(const Tensor& edge_index, const std::vector<int32_t>& parts);

}  // namespace frugal::data
