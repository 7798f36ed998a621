// Whole graphs as batches: one an epoch, of the same tensors every time.
#pragma once
#include <string_view>

#include "data/batch_source.h"
#include "data/graph/graph_data.h"

namespace frugal::data {

enum class GraphPart : uint8_t { train, val, test };
std::string_view name_of(GraphPart part);

// What batches are made of: labels and features of the right shapes. Errors: others, naming `op`.
void check_graph(const char* op, const GraphData& graph);
// The part's mask, [V] u8. Errors: the graph has none, naming random_split.
Tensor mask_of(const GraphData& graph, GraphPart part);
// The part's nodes, ascending. Errors: none.
std::vector<int64_t> nodes_of(const GraphData& graph, GraphPart part);
// What the part may see: of training, train_edge_index where there is one.
Tensor edges_of(const GraphData& graph, GraphPart part);

// Where an epoch of batches made one by one stands; what samplers have in common.
class GraphSource : public BatchSource {
 public:
  std::optional<Batch> next() final;
  LoaderState state() const final { return state_; }
  void seek(const LoaderState& state) final;

 protected:
  virtual Batch make(int64_t epoch, int64_t batch) = 0;

 private:
  LoaderState state_;
};

// Input x [V, F] f32, or for sparse features an empty [V, 0] and the extras x_row_ptr, x_col,
// x_value. Target y, kIgnored outside of the part (with several labels a node: all of the row).
// Extra edge_index [2, E] i64. Every epoch gives the same storages, so that models may keep what
// they derive from them.
// Errors: those of check_graph, a graph without the part's mask, a part without nodes.
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
