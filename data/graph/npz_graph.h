// Graphs as one .npz of sparse matrices, as the benchmark of Shchur et al. 2018 distributes them.
#pragma once
#include <string>

#include "data/graph/graph_data.h"

namespace frugal::data {

// adj_{data,indices,indptr,shape}, attr_{data,indices,indptr,shape} (sparse) and labels [V]. Edges
// become undirected. There is no split: see graph_split.h.
// Errors: those of NpzFile and make_csr; matrices and labels of other sizes, negative labels.
GraphData open_npz_graph(const std::string& path, const GraphOptions& options = {});

// A sparse matrix of arrays NAME{data,indices,indptr,shape}.
class NpzFile;
CsrMatrix read_npz_csr(const NpzFile& file, const std::string& name);

}  // namespace frugal::data
