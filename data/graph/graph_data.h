// GraphData: a graph with features, labels and masks; the readers of graph formats return it.
// Host tensors, in category `input`.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace frugal::data {

struct GraphData {
  int64_t nodes = 0, features = 0, classes = 0;
  // Features: dense x, or rows of a sparse matrix; the other ones are undefined.
  Tensor x;          // [V, F] f32
  Tensor x_row_ptr;  // [V + 1] i64
  Tensor x_col;      // [nnz] i64, ascending within a row
  Tensor x_value;    // [nnz] f32
  // (from, to), both directions of undirected edges, sorted, without duplicates and self-loops.
  Tensor edge_index;  // [2, E] i64
  // What training may see, where that is less than edge_index; else undefined.
  Tensor train_edge_index;
  Tensor
      y;  // [V] i64, kIgnored where unknown; or several labels a node, [V, classes] f32 of 0 and 1
  Tensor train_mask, val_mask, test_mask;  // [V] u8; undefined where the distribution has no split

  bool sparse() const { return x_row_ptr.defined(); }
  int64_t edges() const { return edge_index.defined() ? edge_index.size(1) : 0; }
};

struct GraphOptions {
  bool normalize = true;  // rows of features sum to 1 (rows of zeros stay)
  bool sparse = false;    // features as a sparse matrix
};

// A sparse matrix by rows. REQUIRES, of all that take one: checked by make_csr.
struct CsrMatrix {
  int64_t rows = 0, cols = 0;
  std::vector<int64_t> row_ptr, col;  // col ascending within a row
  std::vector<float> value;
};

// Of arrays as files hold them, integers of any width; sorts rows and adds up duplicates.
// Errors (naming `where`): row_ptr that is not [rows + 1], ascending from 0 to the count of col and
// value; a column out of range; a value that is NaN or infinite, with its row and column.
CsrMatrix make_csr(const std::string& where, int64_t rows, int64_t cols, const Tensor& row_ptr,
                   const Tensor& col, const Tensor& value);

// Puts features into `graph`, with graph.nodes rows. Errors: a dense tensor that is not [V, F] f32,
// or holds NaN or infinity, with its node and column (`where` names the file).
void set_features(GraphData& graph, CsrMatrix features, const GraphOptions& options);
void set_features(const std::string& where, GraphData& graph, const Tensor& features,
                  const GraphOptions& options);

// [2, E] i64, sorted by (from, to), without duplicates and self-loops; `undirected` adds the
// opposite of each edge. REQUIRES: ends in [0, nodes), as many in `to` as in `from`.
Tensor make_edge_index(int64_t nodes, const std::vector<int64_t>& from,
                       const std::vector<int64_t>& to, bool undirected);

// [V] u8, 1 at `members`. Errors: a member outside [0, nodes) or given twice.
Tensor make_mask(const std::string& where, int64_t nodes, const std::vector<int64_t>& members);

}  // namespace frugal::data
