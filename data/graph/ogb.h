// Node-property graphs of the Open Graph Benchmark (ogbn-arxiv, ogbn-products) as downloaded.
// Ref: Hu et al. 2020.
#pragma once
#include <string>

#include "data/graph/graph_data.h"

namespace frugal::data {

// `folder`/raw/{edge,node-feat,node-label}.csv (or .csv.gz) without headers, and the split of
// `folder`/split/*/{train,valid,test}.csv (or .gz). One label column: classes; more: several labels
// a node, 0 or 1. An empty or nan label is unknown. `undirected` adds the opposite of each edge, as
// is usual for ogbn-arxiv, whose citations are directed.
// Errors (with file and line): missing files, rows of other lengths, nodes out of range, NaN or
// infinite features, labels that are no classes, several splits, nodes in two of the three.
GraphData open_ogb(const std::string& folder, bool undirected = true,
                   const GraphOptions& options = {false, false});

}  // namespace frugal::data
