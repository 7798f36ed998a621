// Sparse matrices in CSR form, and graphs: the adjacency by target and by source. Built once on the
// host (category `input`), in an order that depends on the edge list alone, then constant. Of
// tensors on a GPU they are built on the host and moved back.
// On `meta` all have shapes and no memory.
#pragma once
#include <memory>
#include <vector>

#include "core/tensor.h"

namespace frugal::ops {

// How the rows of a CSR matrix are split into tasks of about equal work, whatever the number of
// threads. A long row becomes pieces of kPiece entries, whose results are combined in order.
struct RowSplit {
  static constexpr int64_t kTask = 1024, kPiece = 512;
  struct Task {
    int64_t row, end;    // whole rows [row, end); of a piece, its row alone
    int64_t begin = 0;   // a piece: entries [begin, stop)
    int64_t stop = 0;    //
    int64_t piece = -1;  // its number, -1: whole rows
  };
  struct LongRow {
    int64_t row, first, pieces;  // pieces [first, first + pieces)
  };
  std::vector<Task> tasks;
  std::vector<LongRow> long_rows;
  int64_t pieces = 0;   // of all long rows
  int64_t longest = 0;  // entries of the longest row

  // On CUDA, where a warp takes a row, instead: the pieces of rows of more than kWarpPiece entries.
  static constexpr int64_t kWarpPiece = 128;
  Tensor warp_pieces;  // [pieces, 3] i64: row, first entry, last + 1
  Tensor warp_rows;    // [long rows, 3] i64: row, first piece, pieces
};

struct Csr {
  int64_t rows = 0, cols = 0;
  Tensor row_ptr;  // [rows + 1] i64: row r has the entries [row_ptr[r], row_ptr[r + 1])
  Tensor col;      // [entries] i32
  Tensor value;    // [entries] f32; undefined: ones
  RowSplit split = {};
  int64_t entries() const { return col.size(0); }
};

// A matrix and its transpose.
struct SparseMatrix {
  Csr by_row, by_col;
  Tensor position;  // [entries] i32: where each entry of by_col stands in by_row
  int64_t rows() const { return by_row.rows; }
  int64_t cols() const { return by_row.cols; }
};

// Row i of edges.by_row holds the edges into node i (col: their sources), in the order of the edge
// list; row j of edges.by_col those from node j (col: their targets), ordered by target.
struct Graph {
  int64_t nodes = 0;
  SparseMatrix edges;
};

enum class EdgeNorm : uint8_t {
  none,       // the weights as they are
  symmetric,  // w / sqrt(degree(from) degree(to)), degrees: sums of the weights into a node
  mean,       // w / (sum of the weights into the target)
};
struct GraphOptions {
  // Every node gets one loop, of weight 1 or that of the (last) loop it had; last in its row.
  bool self_loops = false;
  EdgeNorm norm = EdgeNorm::none;
  Tensor edge_weight = {};  // [E] f32 or f64; undefined: ones
};

// edge_index [2, E] i64: from, to. Nodes without edges have empty rows; a degree that is not
// positive normalises to 0.  Errors: another shape or dtype; an end outside [0, nodes), naming the
// edge; weights that are not finite; 2^31 nodes or entries.
// Ref: Kipf & Welling 2017, section 2; PyTorch Geometric's gcn_norm.
Graph make_graph(const Tensor& edge_index, int64_t nodes, const GraphOptions& options = {});

// A CSR matrix (row_ptr [rows + 1] i64, col [entries] i64 or i32, value [entries] f32 or undefined)
// with its transpose.  Errors: row_ptr that does not rise from 0 to the entries; a column outside
// [0, cols); values that are not finite.
SparseMatrix make_sparse(const Tensor& row_ptr, const Tensor& col, const Tensor& value,
                         int64_t cols);

// Groups the elements of `index` [E] i64 by value: row r lists the positions e with index[e] = r,
// ascending (col = e, cols = E). Category: as scoped. Made on the host, moved to where `index` is.
// Errors: values outside [0, rows).
Csr group_by(const char* op, const Tensor& index, int64_t rows);

// The tasks of rows [0, rows) of a CSR matrix on the host.
RowSplit split_rows(const Tensor& row_ptr);

// The same there; category `input`. What is there already is not copied.
SparseMatrix to_device(const SparseMatrix& matrix, Device device);
Graph to_device(const Graph& graph, Device device);

}  // namespace frugal::ops
