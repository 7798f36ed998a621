// Cora, Citeseer and Pubmed in the files ind.NAME.{x,tx,allx,y,ty,ally,graph,test.index}, with the
// split that papers use: the nodes of y train, the next 500 validate, those of test.index test.
// Ref: Yang et al. 2016; Kipf and Welling 2017.
#pragma once
#include <string>

#include "data/graph/graph_data.h"

namespace frugal::data {

// The files are in `folder` or in its folder `planetoid` or `NAME/raw`. Nodes between the test
// nodes that no file describes (15 isolated ones in Citeseer) get features of zeros, no label and
// no mask. The files' few self-loops are dropped, as in PyTorch Geometric's Planetoid. Errors (with
// the file): those of the pickle readers; files whose sizes disagree; a test index or a neighbour
// out of range; labels that are not one-hot.
GraphData open_planetoid(const std::string& folder, const std::string& name,
                         const GraphOptions& options = {});

}  // namespace frugal::data
