// Batches of subgraphs, for graphs that are too large for one batch. Order and content depend only
// on the graph, the options, the epoch and the batch's number, never on threads or on what was
// drawn before.
//
// All batches hold rows of the features as GraphBatches' do (x [V', F] f32, or an empty [V', 0] and
// x_row_ptr, x_col, x_value), targets [V'] i64 or [V', C] f32 with kIgnored for nodes outside of
// the part, and the extras edge_index [2, E'] i64 (positions in the batch) and node_id [V'] i64 (in
// the graph). Where training may see less than the whole graph (train_edge_index), samplers of the
// part `train` draw from that and its training nodes alone. Errors, of all: a graph without labels
// or without the part's mask, a part without nodes.
#pragma once
#include <memory>
#include <vector>

#include "data/graph/graph_batches.h"

namespace frugal::data {

class InEdges;

// How GraphSAINT draws nodes; the subgraph is all edges between them.
enum class SaintSampler : uint8_t {
  walk,  // `roots` uniform nodes and `length` steps of a random walk from each
  node,  // `nodes` draws, more likely for nodes that others' means depend on
  edge,  // the ends of `edges` draws, likely as 1 / degree(from) + 1 / degree(to)
};

// What the extra edge_norm [E'] f32 estimates, without bias, for a node of the batch as a sum over
// its edges: an aggregate over its neighbours in the whole graph. A model takes these coefficients
// as they are, normalises nothing and adds no loops.
enum class GraphAggregate : uint8_t {
  none,             // there is no edge_norm: models take the batch's edges as the graph's
  sum,              // the sum
  mean,             // the mean
  symmetric,        // the sum, each over sqrt(degree(from) degree(to))
  symmetric_loops,  // the same after every node got a loop, which the batch's edges hold, last
};

struct SaintOptions {
  SaintSampler sampler = SaintSampler::walk;
  int64_t roots = 1000, length = 2;  // walk
  int64_t nodes = 2000;              // node: draws
  int64_t edges = 1000;              // edge: draws
  GraphAggregate aggregate = GraphAggregate::mean;
  // Subgraphs are drawn beforehand until they hold this many times the nodes of the graph; from
  // them come the weights.
  int64_t coverage = 50;
  int64_t batches = 0;  // an epoch; 0: as many as hold the graph's nodes once
  uint64_t seed = 0;
};

// The largest `roots`, `nodes` or `edges` (whichever the sampler takes) that makes sense for a
// graph: 4096, or as many as it has nodes or edges; with walks, fewer where they are long.
int64_t most_saint_draws(const GraphData& graph, GraphPart part, const SaintOptions& options);

// GraphSAINT. Two more extras, so that biased drawing leaves no bias:
//   edge_norm [E'] f32: see GraphAggregate.
//   node_weight [V'] f32: the sum of weight * loss over the batch estimates the mean loss of the
//     part's nodes; 0 for other nodes.
// Both are ratios of counts of the subgraphs drawn beforehand; what was never seen counts as seen
// once. Nodes that the sampler never draws (isolated ones, of `edge`) have no part in the mean.
// Errors: also counts below 1 or above most_saint_draws, a graph without edges for `edge`.
// Ref: Zeng et al. 2020, section 3.2 and algorithm 2.
class SaintBatches : public GraphSource {
 public:
  SaintBatches(const GraphData& graph, GraphPart part, const SaintOptions& options = {});
  ~SaintBatches() override;
  int64_t batches() const override { return batches_; }
  int64_t samples() const override { return samples_; }  // nodes of the part

 private:
  struct Sampler;
  Batch make(int64_t epoch, int64_t batch) override;
  void presample();
  GraphData graph_;
  SaintOptions options_;
  Tensor wanted_;  // [V] u8
  std::unique_ptr<Sampler> sampler_;
  std::vector<float> node_weight_, edge_norm_;  // by node, by position of InEdges
  int64_t batches_ = 0, samples_ = 0;
};

struct NeighbourOptions {
  // Neighbours drawn for each node, without repeats, nearest to the targets first; -1: all.
  std::vector<int64_t> fanouts = {10, 10};
  int64_t batch_size = 512;
  bool shuffle = true;
  bool drop_last = false;
  GraphAggregate aggregate = GraphAggregate::none;
  uint64_t seed = 0;
};

// Neighbour sampling: batch_size nodes of the part, the neighbours that are drawn for them, theirs,
// and so on; each node's are drawn once, where it appears first. The part's nodes come first, and
// only they have targets. A mean over the drawn edges is an unbiased estimate of a neighbourhood's;
// others take edge_norm. Nodes drawn last have no edges but loops.
// Errors: also no fan-outs, one of 0 or below -1, batch_size < 1, drop_last leaving nothing.
// Ref: Hamilton et al. 2017, algorithm 2.
class NeighbourBatches : public GraphSource {
 public:
  NeighbourBatches(const GraphData& graph, GraphPart part, const NeighbourOptions& options = {});
  ~NeighbourBatches() override;
  int64_t batches() const override { return batches_; }
  int64_t samples() const override;

 private:
  Batch make(int64_t epoch, int64_t batch) override;
  GraphData graph_;
  NeighbourOptions options_;
  Tensor wanted_;
  std::unique_ptr<InEdges> edges_;
  std::vector<int64_t> nodes_;  // of the part
  std::vector<int64_t> order_;  // of order_epoch_
  std::vector<int32_t> local_;  // positions in the batch, -1 between batches
  int64_t order_epoch_ = -1, batches_ = 0;
};

struct ClusterOptions {
  int64_t clusters = 50;
  int64_t clusters_per_batch = 5;
  bool shuffle = true;
  uint64_t seed = 0;  // of the partition and of the order
};

// Cluster-GCN: the graph in clusters with few edges between them (graph_partition.h); a batch is
// some of them at random with all edges between their nodes. An epoch takes each cluster once, and
// so each node. A batch may hold no node of the part: then all targets are kIgnored.
// Errors: also clusters outside [1, nodes], clusters_per_batch outside [1, clusters].
// Ref: Chiang et al. 2019, section 3.2 (stochastic multiple partitions).
class ClusterBatches : public GraphSource {
 public:
  ClusterBatches(const GraphData& graph, GraphPart part, const ClusterOptions& options = {});
  ~ClusterBatches() override;
  int64_t batches() const override;
  int64_t samples() const override { return samples_; }

 private:
  Batch make(int64_t epoch, int64_t batch) override;
  GraphData graph_;
  ClusterOptions options_;
  Tensor wanted_;
  std::unique_ptr<InEdges> edges_;
  std::vector<std::vector<int64_t>> clusters_;  // nodes
  std::vector<int64_t> order_;
  std::vector<int32_t> scratch_;
  int64_t order_epoch_ = -1, samples_ = 0;
};

}  // namespace frugal::data
