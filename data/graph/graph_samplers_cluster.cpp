#include <algorithm>
#include <numeric>

#include "core/random_streams.h"
#include "data/graph/graph_partition.h"
#include "data/graph/graph_samplers.h"
#include "data/graph/graph_samplers_subgraph.h"
#include "data/loader.h"

namespace frugal::data {

ClusterBatches::ClusterBatches(const GraphData& graph, GraphPart part,
                               const ClusterOptions& options)
    : graph_(graph), options_(options), wanted_(mask_of(graph, part)) {
  check_graph("clusters", graph);
  samples_ = static_cast<int64_t>(nodes_of(graph, part).size());
  const Tensor edge_index = edges_of(graph, part);
  edges_ = std::make_unique<InEdges>(edge_index, graph.nodes);
  // The graph to cut: of training that sees less, the training nodes alone, numbered anew.
  const bool whole = part != GraphPart::train || !graph.train_edge_index.defined();
  std::vector<int64_t> pool, number(static_cast<size_t>(graph.nodes), -1), from, to;
  for (int64_t v = 0; v < graph.nodes; ++v)
    if (whole || wanted_.data<uint8_t>()[v] != 0) {
      number[static_cast<size_t>(v)] = static_cast<int64_t>(pool.size());
      pool.push_back(v);
    }
  for (const int64_t v : pool)
    edges_->each(v, [&](int64_t u) {
      if (number[static_cast<size_t>(u)] < 0) return;
      from.push_back(number[static_cast<size_t>(u)]);
      to.push_back(number[static_cast<size_t>(v)]);
    });
  const auto count = static_cast<int64_t>(pool.size());
  FRUGAL_CHECK(options.clusters >= 1 && options.clusters <= count &&
                   options.clusters_per_batch >= 1 &&
                   options.clusters_per_batch <= options.clusters,
               "[clusters] expected 1 to {} clusters and no more of them a batch, got {} and {}",
               count, options.clusters, options.clusters_per_batch);
  PartitionOptions cut;
  cut.parts = options.clusters;
  cut.seed = options.seed;
  const std::vector<int32_t> parts = partition(make_edge_index(count, from, to, true), count, cut);
  clusters_.resize(static_cast<size_t>(options.clusters));
  for (size_t i = 0; i < pool.size(); ++i)
    clusters_[static_cast<size_t>(parts[i])].push_back(pool[i]);
}

ClusterBatches::~ClusterBatches() = default;

int64_t ClusterBatches::batches() const {
  return (options_.clusters + options_.clusters_per_batch - 1) / options_.clusters_per_batch;
}

Batch ClusterBatches::make(int64_t epoch, int64_t batch) {
  if (order_epoch_ != epoch) {
    order_.resize(clusters_.size());
    std::iota(order_.begin(), order_.end(), int64_t{0});
    if (options_.shuffle)
      order_ = shuffled(options_.clusters, batch_key(options_.seed, streams::kClusterOrder,
                                                     static_cast<uint64_t>(epoch), 0));
    order_epoch_ = epoch;
  }
  const int64_t begin = batch * options_.clusters_per_batch;
  const int64_t end = std::min(begin + options_.clusters_per_batch, options_.clusters);
  std::vector<int64_t> nodes;
  for (int64_t i = begin; i < end; ++i) {
    const auto& cluster = clusters_[static_cast<size_t>(order_[static_cast<size_t>(i)])];
    nodes.insert(nodes.end(), cluster.begin(), cluster.end());
  }
  return make_batch(graph_, induce(*edges_, std::move(nodes), scratch_), wanted_);
}

}  // namespace frugal::data
