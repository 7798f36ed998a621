// Random splits of graphs that come without one.
#pragma once
#include <cstdint>

#include "data/graph/graph_data.h"

namespace frugal::data {

struct GraphSplit {
  // Shares of the labelled nodes. Nodes that are left over belong to no part.
  double train = 0.6, val = 0.2, test = 0.2;
  // If train_per_class is above 0, the shares do not count: that many nodes of each class train,
  // `val_count` others validate and `test_count` others test (test_count 0: all others).
  int64_t train_per_class = 0, val_count = 500, test_count = 0;
  uint64_t seed = 0;
};

// Sets the masks of `graph`. Equal labels and seeds give equal masks on every machine.
// Errors: shares that are negative or sum to more than 1; no training node; a class with fewer
// nodes than train_per_class; train_per_class for a graph with several labels per node.
void random_split(GraphData& graph, const GraphSplit& options = {});

}  // namespace frugal::data
