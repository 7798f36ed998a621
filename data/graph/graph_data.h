// GraphData: a graph with features, labels and masks. The readers of graph formats return it. Its
// tensors are on the host, in category `input`.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace frugal::data {

struct GraphData {
  int64_t nodes = 0, features = 0, classes = 0;
  // Features are either dense (x) or the rows of a sparse matrix (x_...); the others are undefined.
  Tensor x;          // [V, F] f32
  Tensor x_row_ptr;  // [V + 1] i64
  Tensor x_col;      // [nnz] i64, ascending within a row
  Tensor x_value;    // [nnz] f32
  // Pairs (from, to), sorted, without duplicates. Undirected edges appear twice, once in each
  // direction. A self-loop appears once: what it means is up to the network.
  Tensor edge_index;  // [2, E] i64
  // The edges that training may use, if it may not use all; else undefined.
  Tensor train_edge_index;
  // [V] i64, kIgnored if unknown; or [V, classes] f32 of 0 and 1 if a node has several labels.
  Tensor y;
  Tensor train_mask, val_mask, test_mask;  // [V] u8; undefined if the files have no split
  // What a column of features was changed by: less a mean, then times a scale. Empty: by nothing.
  std::vector<double> x_mean, x_scale;

  bool sparse() const { return x_row_ptr.defined(); }
  int64_t edges() const { return edge_index.defined() ? edge_index.size(1) : 0; }
};

struct GraphOptions {
  // Scales each row of features to absolute values whose sum is 1; rows of zeros stay.
  bool normalize = true;
  bool sparse = false;  // features as a sparse matrix
};

// A sparse matrix by rows. REQUIRES, wherever one is passed: it satisfies what make_csr checks.
struct CsrMatrix {
  int64_t rows = 0, cols = 0;
  std::vector<int64_t> row_ptr, col;  // col ascending within a row
  std::vector<float> value;
};

// A matrix from the arrays of a file, with integers of any width. Sorts rows and adds up
// duplicates. Errors (messages name `where`): a row_ptr that is not [rows + 1] or does not ascend
// from 0 to the number of columns and values; a column out of range; a value that is NaN or
// infinite, with its row and column.
CsrMatrix make_csr(const std::string& where, int64_t rows, int64_t cols, const Tensor& row_ptr,
                   const Tensor& col, const Tensor& value);

// How many classes labels from a file may have. A network has an output for each class, so one
// large label must not mean millions of outputs.
int64_t most_classes(const GraphData& graph);

// Warns of classes below the highest one that no node has, such as 0 where labels begin with 1.
// REQUIRES: one label a node.
void warn_of_empty_classes(const char* op, const std::string& where, const GraphData& graph);

// Sets the features of `graph`, one row for each of graph.nodes. Errors: a dense tensor that is not
// [V, F] f32; NaN or infinity, with node and column (`where` names the file).
void set_features(GraphData& graph, CsrMatrix features, const GraphOptions& options);
void set_features(const std::string& where, GraphData& graph, const Tensor& features,
                  const GraphOptions& options);

// What becomes of edges from a node to itself. Networks define their own use of them: GCN, GCNII
// and GAT give each node one loop whether it had one or not, and GraphSAGE takes edges as they are.
enum class SelfLoops : uint8_t { keep, drop };

// The edges [2, E] i64, sorted by (from, to), each once. `undirected` adds the opposite of each
// edge. REQUIRES: ends in [0, nodes); `from` and `to` of equal length.
Tensor make_edge_index(int64_t nodes, const std::vector<int64_t>& from,
                       const std::vector<int64_t>& to, bool undirected,
                       SelfLoops loops = SelfLoops::keep);

// A mask [V] u8 that is 1 at `members`. Errors: a member outside [0, nodes) or given twice.
Tensor make_mask(const std::string& where, int64_t nodes, const std::vector<int64_t>& members);

}  // namespace frugal::data
