// Random splits of graphs that come without one.
#pragma once
#include <cstdint>

#include "data/graph/graph_data.h"

namespace frugal::data {

struct GraphSplit {
  // Shares of the labelled nodes. Whatever is left over has no mask.
  double train = 0.6, val = 0.2, test = 0.2;
  // Above 0: so many training nodes of each class instead, and `val_count` and `test_count` others
  // (test_count 0: all that are left).
  int64_t train_per_class = 0, val_count = 500, test_count = 0;
  uint64_t seed = 0;
};

// Sets the masks of `graph`; the same for equal labels and seeds, on every machine.
// Errors: shares that are negative or sum to more than 1, no training nodes, classes of fewer
// nodes than wanted, train_per_class with several labels a node.
void random_split(GraphData& graph, const GraphSplit& options = {});

}  // namespace frugal::data
