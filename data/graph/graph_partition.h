// Partitions of a graph's nodes into clusters of about equal size with few edges between them.
#pragma once
#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace frugal::data {

struct PartitionOptions {
  int64_t parts = 2;
  double slack = 0.05;  // a part holds at most (1 + slack) nodes / parts, rounded up
  uint64_t seed = 0;
};

// The part of each node, in [0, parts); no part is empty. METIS finds the parts. Where it leaves a
// part above the limit or empty, nodes move until every part is as promised. The answer depends on
// the edges and the options alone. Directions and multiplicity of edges do not count.
// edge_index [2, E] i64.  Errors: parts outside [1, nodes]; slack < 0; more nodes or edges than
// METIS can count (2^31 in Debian's package); no memory for METIS.
// Thread safety: one call at a time, because METIS draws from the C library's generator.
// Ref: Karypis and Kumar 1998 (multilevel recursive bisection); Chiang et al. 2019.
std::vector<int32_t> partition(const Tensor& edge_index, int64_t nodes,
                               const PartitionOptions& options);

}  // namespace frugal::data
