// Batches of subgraphs, for graphs that are too large for one batch. Order and content depend on
// the graph, the options, the epoch and the batch's number alone, never on threads or on earlier
// draws.
//
// A batch holds, for its V' nodes and E' edges:
//   input       features as in GraphBatches: x [V', F] f32, or an empty [V', 0] with the extras
//               x_row_ptr, x_col and x_value
//   target      [V'] i64 or [V', C] f32, with kIgnored for nodes outside the part
//   extras      edge_index [2, E'] i64, positions in the batch; node_id [V'] i64, nodes of the
//   graph
// If the graph has a train_edge_index, samplers of the part `train` draw from its edges and from
// training nodes alone.
// Shares (set_share): NeighbourBatches divides the targets of a batch. The loss of a subgraph that
// SaintBatches or ClusterBatches made needs all edges between its nodes, so such a batch is not
// divided: rank 0 has it, and the others have batches without nodes. Errors of all samplers: a
// graph without labels or without the part's mask; a part without nodes.
#pragma once
#include <memory>
#include <vector>

#include "data/graph/graph_batches.h"

namespace frugal::data {

class InEdges;

// How GraphSAINT draws nodes. The subgraph has all edges between the drawn nodes.
enum class SaintSampler : uint8_t {
  walk,  // `roots` uniform nodes and `length` steps of a random walk from each
  node,  // `nodes` draws; nodes that count more in the means of others are more likely
  edge,  // both ends of `edges` draws; an edge's probability grows with
         // 1 / degree(from) + 1 / degree(to)
};

// The aggregate over a node's neighbours in the whole graph that a batch estimates without bias:
// the sum over the node's edges in the batch, weighted by the extra edge_norm [E'] f32. The model
// uses these weights as they are; it neither normalises nor adds loops.
enum class GraphAggregate : uint8_t {
  none,             // no edge_norm: the model treats the batch's edges as the whole graph
  sum,              // the sum
  mean,             // the mean
  symmetric,        // the sum of each neighbour / sqrt(degree(from) degree(to))
  symmetric_loops,  // as symmetric, after each node got one loop in place of what the graph has;
                    // the batch's last edges are the loops
};

struct SaintOptions {
  SaintSampler sampler = SaintSampler::walk;
  int64_t roots = 1000, length = 2;  // walk
  int64_t nodes = 2000;              // node: draws
  int64_t edges = 1000;              // edge: draws
  GraphAggregate aggregate = GraphAggregate::mean;
  // Before training, subgraphs are drawn until they hold `coverage` times as many nodes as the
  // graph. The weights are computed from them.
  int64_t coverage = 50;
  int64_t batches = 0;  // per epoch; 0: as many as hold as many nodes as the graph
  uint64_t seed = 0;
};

// The largest useful value of `roots`, `nodes` or `edges`, whichever the sampler reads: the number
// of the graph's nodes or edges, or 4096 if that is more; less for long walks.
int64_t most_saint_draws(const GraphData& graph, GraphPart part, const SaintOptions& options);

// GraphSAINT. Some nodes and edges are drawn more often than others; two more extras correct that:
//   edge_norm [E'] f32: see GraphAggregate.
//   node_weight [V'] f32: the sum of weight * loss over the batch estimates the mean loss of the
//     part's nodes; 0 for other nodes.
// Both are ratios of counts in the subgraphs that were drawn before training. A node or edge that
// never occurred there counts as seen once. Nodes that the sampler can never draw (isolated nodes,
// with `edge`) do not count in the mean.
// Errors: also counts below 1 or above most_saint_draws; `edge` on a graph without edges.
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
  std::vector<float> node_weight_;  // weight of each node
  std::vector<float> edge_norm_;    // weight of each edge, by its position in InEdges
  int64_t batches_ = 0, samples_ = 0;
};

struct NeighbourOptions {
  // How many neighbours are drawn for each node, without repeats; -1: all. The first number is for
  // the targets, the second for their neighbours, and so on.
  std::vector<int64_t> fanouts = {10, 10};
  int64_t batch_size = 512;
  bool shuffle = true;
  bool drop_last = false;
  GraphAggregate aggregate = GraphAggregate::none;
  uint64_t seed = 0;
};

// Neighbour sampling: a batch starts from batch_size nodes of the part, the targets. Neighbours are
// drawn for them, then for these neighbours, and so on, once for each node. The targets are the
// first nodes of the batch. The mean over a node's drawn edges estimates the mean over its
// neighbours without bias; other aggregates need edge_norm. The nodes of the last draw have no
// edges except loops.
// A share (set_share) holds consecutive targets and what leads to them: the nodes from which drawn
// edges lead to these targets in as many steps as there are fan-outs. It draws for the whole batch,
// which costs little, and so each of its nodes has the neighbours and the edge_norm that it has in
// one process; only nodes that are all these steps away have no edges except loops. So a network
// with no more layers than fan-outs that weighs edges by edge_norm, by the edges into their target
// or by attention gives a target the output of one process. A node that leads to the targets of
// several processes is in the share of each. Errors: also no fan-outs; a fan-out of 0 or below -1;
// batch_size < 1; drop_last that leaves no batch. Ref: Hamilton et al. 2017, algorithm 2.
class NeighbourBatches : public GraphSource {
 public:
  NeighbourBatches(const GraphData& graph, GraphPart part, const NeighbourOptions& options = {});
  ~NeighbourBatches() override;
  int64_t batches() const override { return batches_; }
  int64_t samples() const override;
  int64_t smallest_batch() const override { return smallest_of(samples(), options_.batch_size); }

 private:
  Batch make(int64_t epoch, int64_t batch) override;
  GraphData graph_;
  NeighbourOptions options_;
  Tensor wanted_;
  std::unique_ptr<InEdges> edges_;
  std::vector<int64_t> nodes_;  // the nodes of the part
  std::vector<int64_t> order_;  // the order of nodes_ in order_epoch_
  std::vector<int32_t> local_;  // positions in the batch, -1 between batches
  int64_t order_epoch_ = -1, batches_ = 0;
};

struct ClusterOptions {
  int64_t clusters = 50;
  int64_t clusters_per_batch = 5;
  bool shuffle = true;
  uint64_t seed = 0;  // draws the partition and the order
};

// Cluster-GCN: graph_partition.h cuts the graph into clusters with few edges between them. A batch
// is clusters_per_batch random clusters with all edges between their nodes. An epoch takes each
// cluster, and so each node, once. If a batch holds no node of the part, all its targets are
// kIgnored. Errors: also clusters outside [1, nodes]; clusters_per_batch outside [1, clusters].
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
