// Graphs of the MUSAE collection: Facebook pages and the like.
// Ref: Rozemberczki et al. 2021.
#pragma once
#include <string>

#include "data/graph/graph_data.h"

namespace frugal::data {

// `folder`/NAME_edges.csv (id_1,id_2: undirected), NAME_features.json ({"node": [columns]}) and
// NAME_target.csv (id, ..., label), or the same with musae_ in front. Labels are the last column,
// as classes in alphabetical order. There is no split: see graph_split.h.
// Errors (with file and line): missing files, tables of another form, nodes that are not 0 to
// V - 1, each once, or edges and features of others; columns above 2^24.
GraphData open_musae(const std::string& folder, const std::string& name,
                     const GraphOptions& options = {});

}  // namespace frugal::data
