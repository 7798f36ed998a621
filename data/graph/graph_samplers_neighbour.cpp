#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "core/random_streams.h"
#include "data/graph/graph_samplers.h"
#include "data/graph/graph_samplers_subgraph.h"
#include "data/loader.h"

namespace frugal::data {
namespace {

// `count` of the numbers below `bound`, without repeats, ascending. Ref: Floyd's algorithm, Bentley
// and Floyd 1987.
void distinct(Draws& draws, int64_t bound, int64_t count, std::vector<int64_t>& out) {
  out.clear();
  // Few numbers are found faster in a sorted list; in a long one, each insertion moves all behind
  // it.
  const bool few = count <= 64;
  std::unordered_set<int64_t> seen;
  const auto has = [&](int64_t value) {
    return few ? std::binary_search(out.begin(), out.end(), value) : seen.contains(value);
  };
  for (int64_t last = bound - count; last < bound; ++last) {
    const int64_t drawn = draws.below(last + 1);
    const int64_t taken = has(drawn) ? last : drawn;
    if (few) {
      out.insert(std::upper_bound(out.begin(), out.end(), taken), taken);
    } else {
      seen.insert(taken);
      out.push_back(taken);
    }
  }
  if (!few) std::sort(out.begin(), out.end());
}

}  // namespace

NeighbourBatches::NeighbourBatches(const GraphData& graph, GraphPart part,
                                   const NeighbourOptions& options)
    : graph_(graph), options_(options), wanted_(mask_of(graph, part)) {
  check_graph("neighbours", graph);
  FRUGAL_CHECK(!options.fanouts.empty() && options.batch_size >= 1,
               "[neighbours] expected fan-outs and a batch_size of at least 1, got {} and {}",
               options.fanouts.size(), options.batch_size);
  for (const int64_t fanout : options.fanouts)
    FRUGAL_CHECK(fanout >= 1 || fanout == -1,
                 "[neighbours] expected fan-outs of at least 1, or -1 for all, got {}", fanout);
  nodes_ = nodes_of(graph, part);
  edges_ = std::make_unique<InEdges>(edges_of(graph, part), graph.nodes);
  local_.assign(static_cast<size_t>(graph.nodes), -1);
  const auto count = static_cast<int64_t>(nodes_.size());
  batches_ = count / options.batch_size;
  if (!options.drop_last && count % options.batch_size != 0) ++batches_;
  FRUGAL_CHECK(batches_ > 0,
               "[neighbours] expected a batch_size of at most {} nodes with drop_last, got {}",
               count, options.batch_size);
}

NeighbourBatches::~NeighbourBatches() = default;

int64_t NeighbourBatches::samples() const {
  return std::min(static_cast<int64_t>(nodes_.size()), batches_ * options_.batch_size);
}

Batch NeighbourBatches::make(int64_t epoch, int64_t batch) {
  const auto count = static_cast<int64_t>(nodes_.size());
  if (order_epoch_ != epoch) {
    order_.resize(nodes_.size());
    std::iota(order_.begin(), order_.end(), int64_t{0});
    if (options_.shuffle)
      order_ = shuffled(count, batch_key(options_.seed, streams::kSeedNodeOrder,
                                         static_cast<uint64_t>(epoch), 0));
    order_epoch_ = epoch;
  }
  Subgraph subgraph;
  std::vector<int64_t>& nodes = subgraph.nodes;
  const auto position_of = [&](int64_t node) {
    int32_t& local = local_[static_cast<size_t>(node)];
    if (local < 0) {
      local = static_cast<int32_t>(nodes.size());
      nodes.push_back(node);
    }
    return local;
  };
  const int64_t begin = batch * options_.batch_size;
  const int64_t seeds = std::min(options_.batch_size, count - begin);
  for (int64_t i = begin; i < begin + seeds; ++i)
    position_of(nodes_[static_cast<size_t>(order_[static_cast<size_t>(i)])]);
  Draws draws(batch_key(options_.seed, streams::kFanOut, static_cast<uint64_t>(epoch),
                        static_cast<uint64_t>(batch)));
  size_t from = 0;  // nodes whose neighbours are not drawn yet
  std::vector<int64_t> chosen;
  for (const int64_t fanout : options_.fanouts) {
    const size_t end = nodes.size();
    for (; from < end; ++from) {
      const int64_t node = nodes[from], degree = edges_->degree(node);
      if (fanout < 0 || degree <= fanout) {
        chosen.resize(static_cast<size_t>(degree));
        std::iota(chosen.begin(), chosen.end(), int64_t{0});
      } else {
        distinct(draws, degree, fanout, chosen);
      }
      for (const int64_t i : chosen) {
        const int64_t position = edges_->begin(node) + i;
        subgraph.from.push_back(position_of(edges_->from(position)));
        subgraph.to.push_back(static_cast<int64_t>(from));
        subgraph.position.push_back(position);
      }
    }
  }
  for (const int64_t node : nodes) local_[static_cast<size_t>(node)] = -1;
  const GraphAggregate aggregate = options_.aggregate;
  if (aggregate == GraphAggregate::none) return make_batch(graph_, subgraph, wanted_, seeds);
  std::vector<int64_t> into(nodes.size());
  for (const int64_t to : subgraph.to) ++into[static_cast<size_t>(to)];
  if (aggregate == GraphAggregate::symmetric_loops) add_loops(subgraph);
  Batch out = make_batch(graph_, subgraph, wanted_, seeds);
  const CategoryScope category(Category::input);
  const Tensor norm = Tensor::empty({static_cast<int64_t>(subgraph.to.size())});
  for (size_t e = 0; e < subgraph.to.size(); ++e) {
    const auto to = static_cast<size_t>(subgraph.to[e]);
    const int64_t node = nodes[to], sender = nodes[static_cast<size_t>(subgraph.from[e])];
    // 1 / (the probability of the edge, given that its target's are drawn); of a loop 1.
    const double drawings = subgraph.position[e] < 0 ? 1.0
                                                     : static_cast<double>(edges_->degree(node)) /
                                                           static_cast<double>(into[to]);
    norm.mut<float>()[e] =
        static_cast<float>(drawings * coefficient(*edges_, aggregate, sender, node));
  }
  out.extras.emplace_back("edge_norm", norm);
  return out;
}

}  // namespace frugal::data
