// Sparse matrices in CSR form, and graphs as two such matrices: the edges by target and by source.
// They are built once on the host (category `input`) in an order that depends only on the edge
// list, and do not change afterwards. For tensors on a GPU they are built on the host and copied
// back. On `meta` they have shapes and no memory.
#pragma once
#include <memory>
#include <vector>

#include "core/tensor.h"

namespace frugal::ops {

// Splits the rows of a CSR matrix into tasks of about equal work, for any number of threads. A long
// row becomes pieces of kPiece entries, whose results are combined in order.
struct RowSplit {
  static constexpr int64_t kTask = 1024, kPiece = 512;
  struct Task {
    int64_t row, end;   // whole rows [row, end); if it is a piece, only `row`
    int64_t begin = 0;  // if it is a piece: its entries are [begin, stop)
    int64_t stop = 0;
    int64_t piece = -1;  // number of the piece; -1: the task has whole rows
  };
  struct LongRow {
    int64_t row, first, pieces;  // a long row and its pieces [first, first + pieces)
  };
  std::vector<Task> tasks;
  std::vector<LongRow> long_rows;
  int64_t pieces = 0;   // how many pieces all long rows have together
  int64_t longest = 0;  // entries of the longest row

  // The split for CUDA, where a warp takes a row: rows with more than kWarpPiece entries are cut
  // into pieces.
  static constexpr int64_t kWarpPiece = 128;
  Tensor warp_pieces;  // [pieces, 3] i64: row, first entry, last entry + 1
  Tensor warp_rows;    // [long rows, 3] i64: row, first piece, number of pieces
};

struct Csr {
  int64_t rows = 0, cols = 0;
  Tensor row_ptr;  // [rows + 1] i64: row r has the entries [row_ptr[r], row_ptr[r + 1])
  Tensor col;      // [entries] i32
  Tensor value;    // [entries] f32; undefined: every value is 1
  RowSplit split = {};
  int64_t entries() const { return col.size(0); }
};

// A matrix and its transpose.
struct SparseMatrix {
  Csr by_row, by_col;
  // [entries] i32: the position in by_row of each entry of by_col. Undefined where nobody asked for
  // it (GraphOptions::positions).
  Tensor position;
  int64_t rows() const { return by_row.rows; }
  int64_t cols() const { return by_row.cols; }
};

// Row i of edges.by_row holds the edges into node i in the order of the edge list; col is their
// source. Row j of edges.by_col holds the edges from node j, ordered by target; col is their
// target.
struct Graph {
  int64_t nodes = 0;
  SparseMatrix edges;
};

enum class EdgeNorm : uint8_t {
  none,       // the weights unchanged
  symmetric,  // w / sqrt(degree(from) degree(to)); a degree is the sum of the weights into a node
  mean,       // w / (sum of the weights into the target)
};
struct GraphOptions {
  // Every node gets one loop, which is the last entry of its row. Its weight is 1, or that of the
  // node's (last) loop if it had one.
  bool self_loops = false;
  EdgeNorm norm = EdgeNorm::none;
  Tensor edge_weight = {};  // [E] f32 or f64; undefined: ones
  // Makes SparseMatrix::position, which the maximum and graph attention read; sums do not.
  bool positions = true;
};

// edge_index [2, E] i64: from, to. A node without edges has an empty row. A degree that is not
// positive makes the normalised weight 0.  Errors: another shape or dtype; an end outside [0,
// nodes), naming the edge; weights that are not finite; 2^31 nodes or entries, or more.
// Ref: Kipf & Welling 2017, section 2; PyTorch Geometric's gcn_norm.
Graph make_graph(const Tensor& edge_index, int64_t nodes, const GraphOptions& options = {});

// A CSR matrix (row_ptr [rows + 1] i64, col [entries] i64 or i32, value [entries] f32 or undefined)
// and its transpose.  Errors: row_ptr does not rise from 0 to the number of entries; a column
// outside [0, cols); values that are not finite.
SparseMatrix make_sparse(const Tensor& row_ptr, const Tensor& col, const Tensor& value,
                         int64_t cols);

// Groups the elements of `index` [E] i64 by value: row r lists, in ascending order, the positions e
// with index[e] = r (col = e, cols = E). The memory gets the category of the current CategoryScope.
// Built on the host, then copied to the device of `index`.
// Errors: values outside [0, rows).
Csr group_by(const char* op, const Tensor& index, int64_t rows);

// The tasks for all rows of a CSR matrix on the host.
RowSplit split_rows(const Tensor& row_ptr);

// The matrix on `device`, in category `input`. Parts that are there already are not copied.
SparseMatrix to_device(const SparseMatrix& matrix, Device device);
Graph to_device(const Graph& graph, Device device);

}  // namespace frugal::ops
