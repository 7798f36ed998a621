// Graphs in one .npz file of sparse matrices.  Ref: the benchmark of Shchur et al. 2018.
#pragma once
#include <string>

#include "data/graph/graph_data.h"

namespace frugal::data {

// Reads the sparse matrices adj_{data,indices,indptr,shape} (edges without weights, which become
// undirected) and attr_{data,indices,indptr,shape} (features), and labels [V]. The graph has no
// split: see graph_split.h. Before data are unpacked, the arrays' headers must agree with each
// other. Warns of what read_npz_adjacency() warns of, and of classes without a node.
// Errors: those of NpzFile and make_csr; matrices and labels whose sizes disagree; negative labels.
GraphData open_npz_graph(const std::string& path, const GraphOptions& options = {});

// The sparse matrix in the arrays NAME{data,indices,indptr,shape}. Errors: as above; an array
// NAMEformat that is not "csr".
class NpzFile;
CsrMatrix read_npz_csr(const NpzFile& file, const std::string& name);
// Such a matrix as edges: where its value is not 0. The values of the result say nothing more.
// Warns of weights, which are passed over, and of zeros that the file holds. Errors: as above;
// zeros alone.
CsrMatrix read_npz_adjacency(const NpzFile& file, const std::string& name);

}  // namespace frugal::data
