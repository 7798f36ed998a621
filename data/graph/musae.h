// Graphs of the MUSAE collection: Facebook pages and the like.
// Ref: Rozemberczki et al. 2021.
#pragma once
#include <string>

#include "data/graph/graph_data.h"

namespace frugal::data {

// Reads NAME_edges.csv (id_1,id_2: undirected edges), NAME_features.json ({"node": [columns]}) and
// NAME_target.csv (id, ..., label) in `folder`, or files with musae_ before these names. The last
// column of the targets is the label, of which an empty cell is unknown; classes are numbered in
// alphabetical order. The graph has no split: see graph_split.h. Warns of a column that is hardly
// the label, and of nodes without one.
// Errors (with file and line): missing files; tables of another form; edges without the line of
// names before them; targets that do not name each node of 0 to V - 1 once, or that are other ones
// for all nodes; edges or features of other nodes; columns above 2^24.
GraphData open_musae(const std::string& folder, const std::string& name,
                     const GraphOptions& options = {});

}  // namespace frugal::data
