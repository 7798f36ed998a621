// What samplers share: the edges into a node, subgraphs, random draws. Internal to data.
#pragma once
#include <span>
#include <vector>

#include "core/random/random_streams.h"
#include "core/rng.h"
#include "data/dataset.h"
#include "data/graph/graph_data.h"
#include "data/graph/graph_samplers.h"

namespace frugal::data {

// The edges into each node. If edge_index is sorted, the sources of each node ascend.
class InEdges {
 public:
  // edge_index [2, E] i64. Errors: another tensor; an end outside [0, nodes), with the edge's
  // number.
  InEdges(const Tensor& edge_index, int64_t nodes, SelfLoops loops = SelfLoops::keep);

  int64_t nodes() const { return static_cast<int64_t>(row_ptr_.size()) - 1; }
  int64_t edges() const { return static_cast<int64_t>(from_.size()); }
  // Positions [begin(v), end(v)) hold the edges into v.
  int64_t begin(int64_t node) const { return row_ptr_[static_cast<size_t>(node)]; }
  int64_t end(int64_t node) const { return row_ptr_[static_cast<size_t>(node) + 1]; }
  int64_t degree(int64_t node) const { return end(node) - begin(node); }
  int64_t from(int64_t position) const { return from_[static_cast<size_t>(position)]; }
  int64_t to(int64_t position) const;  // O(log V)

  template <class F>
  void each(int64_t node, const F& f) const {
    for (int64_t i = begin(node); i < end(node); ++i) f(from(i));
  }

 private:
  std::vector<int64_t> row_ptr_, from_;
};

// Nodes of a graph with some of the edges between them.
struct Subgraph {
  std::vector<int64_t> nodes;
  std::vector<int64_t> from, to;  // ends of each edge, as positions in `nodes`
  std::vector<int64_t> position;  // position of each edge in InEdges
};

// Memory that a thread reuses from call to call. Between calls all values are -1.
using Scratch = std::vector<int32_t>;

// The subgraph of `nodes`, sorted and without duplicates, with all edges between them.
Subgraph induce(const InEdges& edges, std::vector<int64_t> nodes, Scratch& scratch);

// The batch of a subgraph, as graph_samplers.h describes it. A node has a target if `wanted` [V] u8
// is 1 for it and, if `seeds` is not negative, if it is among the first `seeds` nodes.
Batch make_batch(const GraphData& graph, const Subgraph& subgraph, const Tensor& wanted,
                 int64_t seeds = -1);

// The factor of the edge from -> to in `aggregate` over the whole graph; if from == to, the factor
// of the node's loop. REQUIRES: aggregate is not none.
double coefficient(const InEdges& edges, GraphAggregate aggregate, int64_t from, int64_t to);
// Adds a loop at every node, behind the other edges, with position -1.
void add_loops(Subgraph& subgraph);

// The key of batch `batch` of epoch `epoch` of `stream`.
RngKey batch_key(uint64_t seed, const RandomStream& stream, uint64_t epoch, uint64_t batch);

// Draws in order from one key.
class Draws {
 public:
  explicit Draws(RngKey key) : key_(key) {}
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(uniform_int(key_, next_++, static_cast<uint64_t>(bound)));
  }
  double unit();  // [0, 1), 53 bits

 private:
  RngKey key_;
  uint64_t next_ = 0;
};

}  // namespace frugal::data
