// Node-property graphs of the Open Graph Benchmark (ogbn-arxiv, ogbn-products) as downloaded.
// Ref: Hu et al. 2020.
#pragma once
#include <string>

#include "data/graph/graph_data.h"

namespace frugal::data {

// Reads raw/{edge,node-feat,node-label}.csv without headers and the split in
// split/*/{train,valid,test}.csv, all in `folder` and all plain or with .gz. One column of labels
// holds classes; several hold 0 or 1 each. An empty or nan label is unknown. `undirected` adds the
// opposite of each edge, as papers do for ogbn-arxiv, whose citations are directed.
// Errors (with file and line): missing files; rows of different lengths; nodes out of range; NaN or
// infinite features; labels that are no classes; several splits; a node in two parts of the split.
GraphData open_ogb(const std::string& folder, bool undirected = true,
                   const GraphOptions& options = {false, false});

}  // namespace frugal::data
