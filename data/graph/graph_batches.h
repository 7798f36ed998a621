// GraphBatches: the whole graph as the only batch of an epoch, and what all sources of graphs
// share.
#pragma once
#include <string_view>

#include "data/batch_source.h"
#include "data/graph/graph_data.h"

namespace frugal::data {

enum class GraphPart : uint8_t { train, val, test };
std::string_view name_of(GraphPart part);

// Checks that labels and features have the right shapes. Messages name `op`. Errors: they do not.
void check_graph(const char* op, const GraphData& graph);
// The part's mask [V] u8. Errors: the graph has no masks; the message names random_split.
Tensor mask_of(const GraphData& graph, GraphPart part);
// The part's nodes, ascending. Errors: the part has no node.
std::vector<int64_t> nodes_of(const GraphData& graph, GraphPart part);
// The edges that the part may use: for training train_edge_index, if the graph has one; else all.
Tensor edges_of(const GraphData& graph, GraphPart part);

// The base of sources that make each batch from the numbers of its epoch and its place there. A
// graph cannot be divided without losing edges. So, unless a source says more, the share of rank 0
// is the whole batch, and the other ranks get batches without nodes. smallest_batch() is 1, by
// which a trainer of several processes knows that it cannot use such a source; evaluations can.
class GraphSource : public BatchSource {
 public:
  std::optional<Batch> next() final;
  LoaderState state() const final { return state_; }
  void seek(const LoaderState& state) final;
  void set_share(const Share& share) final;

 protected:
  // Makes this process's share of the batch.
  virtual Batch make(int64_t epoch, int64_t batch) = 0;
  const Share& share() const { return share_; }
  // Does this process get the batches that are not divided? Others get no nodes.
  bool gets_whole() const { return share_.rank == 0; }

 private:
  LoaderState state_;
  Share share_;
};

// Input: x [V, F] f32; if features are sparse, an empty [V, 0] with the extras x_row_ptr, x_col and
// x_value. Target: y, with kIgnored for nodes outside the part (for all labels of such a node).
// Extra: edge_index [2, E] i64. Each epoch gives the same tensors, so models may keep what they
// derive from them. A share without nodes has no held tensors. Errors: those of check_graph, a
// graph without the part's mask, a part without nodes.
class GraphBatches : public GraphSource {
 public:
  GraphBatches(const GraphData& graph, GraphPart part);
  int64_t batches() const override { return 1; }
  int64_t samples() const override { return samples_; }

 private:
  Batch make(int64_t epoch, int64_t batch) override;
  Batch batch_;
  int64_t samples_ = 0;
};

}  // namespace frugal::data
