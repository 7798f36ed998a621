// Graphs as GraphSAINT distributes them: Flickr, Reddit, Yelp, Amazon, PPI.
// Ref: Zeng et al. 2020.
#pragma once
#include <string>

#include "data/graph/graph_data.h"

namespace frugal::data {

struct GraphSaintOptions {
  bool standardize = true;  // gives columns mean 0 and variance 1 over the training nodes
  GraphOptions features{false, false};
  // With standardize: these instead of what the training nodes have now. One for each column.
  std::vector<double> mean = {}, scale = {};
};

// Reads adj_full.npz, feats.npy, class_map.json and role.json in `folder`. Training may use the
// edges of adj_train.npz; without that file, the edges between training nodes. Row i of a matrix
// holds the nodes with an edge to node i. A node's label is a number or a list of 0 and 1. Errors:
// those of NpzFile, read_npy and make_csr; sizes that disagree; a node without a label; a node of
// two roles; NaN or infinite features; standardize with sparse features.
GraphData open_graphsaint(const std::string& folder, const GraphSaintOptions& options = {});

}  // namespace frugal::data
