// Cora, Citeseer and Pubmed as ind.NAME.{x,tx,allx,y,ty,ally,graph,test.index}, with the split that
// papers use: the labelled nodes of y train, the 500 behind them validate, test.index tests.
// Ref: Yang et al. 2016; Kipf and Welling 2017.
#pragma once
#include <string>

#include "data/graph/graph_data.h"

namespace frugal::data {

// `folder` holds the files, or has a folder `planetoid` or `NAME/raw` that does. Test nodes that
// stand nowhere (15 of Citeseer's are isolated) have features of zeros, no label and no mask.
// Errors (naming the file): those of the pickles; parts whose sizes disagree; a test index or a
// neighbour out of range; labels that are not one-hot.
GraphData open_planetoid(const std::string& folder, const std::string& name,
                         const GraphOptions& options = {});

}  // namespace frugal::data
