// Graphs as GraphSAINT distributes them: Flickr, Reddit, Yelp, Amazon, PPI.
// Ref: Zeng et al. 2020.
#pragma once
#include <string>

#include "data/graph/graph_data.h"

namespace frugal::data {

struct GraphSaintOptions {
  bool standardize = true;  // columns to mean 0 and variance 1 over the training nodes
  GraphOptions features{false, false};
};

// `folder`/{adj_full.npz, feats.npy, class_map.json, role.json} and, if it is there, adj_train.npz:
// what training may see; without it, the edges between training nodes. Row i of a matrix holds the
// nodes that send to node i. Labels are one number or a list of 0 and 1 for each node.
// Errors: those of NpzFile, read_npy and make_csr; sizes that disagree; nodes without a label;
// roles that overlap; NaN or infinite features; standardize with sparse features.
GraphData open_graphsaint(const std::string& folder, const GraphSaintOptions& options = {});

}  // namespace frugal::data
