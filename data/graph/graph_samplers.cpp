#include "data/graph/graph_samplers.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <unordered_set>

#include "core/parallel.h"
#include "core/random/random_streams.h"
#include "data/graph/graph_partition.h"
#include "data/graph/subgraph.h"
#include "data/loader.h"

namespace frugal::data {
namespace {

// Subgraphs are drawn in parallel, in blocks of about kBlockNodes nodes, and then counted. The size
// of a block is fixed, so that the draws do not depend on the number of threads.
constexpr int64_t kBlockNodes = 65536;

// More draws than the graph has nodes or edges find little that is new and cost time. A small graph
// still accepts this many draws, this many steps of all walks, and this many steps per node.
constexpr int64_t kFewDraws = 4096, kFewSteps = 65536, kStepsOfNode = 64;

// With symmetric_loops every node gets one loop of its own, in place of what the graph has.
SelfLoops loops_of_edges(GraphAggregate aggregate) {
  return aggregate == GraphAggregate::symmetric_loops ? SelfLoops::drop : SelfLoops::keep;
}

// Draws `count` different numbers below `bound`, ascending. Ref: Floyd's algorithm, Bentley
// and Floyd 1987.
void distinct(Draws& draws, int64_t bound, int64_t count, std::vector<int64_t>& out) {
  out.clear();
  // A sorted list is faster for few numbers. In a long list, each insertion would move many.
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

// The part of `whole` from which edges lead to its nodes [begin, end) in at most `steps` steps. Its
// nodes: those first, then the others in the order of `whole`. Nodes that are `steps` steps away
// have no edges. REQUIRES: the edges of `whole` are in the order of their targets.
Subgraph leading_to(const Subgraph& whole, int64_t begin, int64_t end, size_t steps) {
  const size_t count = whole.nodes.size();
  // Edges into node v: [edges_into[v], edges_into[v + 1]).
  std::vector<size_t> edges_into(count + 1);
  for (const int64_t to : whole.to) ++edges_into[static_cast<size_t>(to) + 1];
  std::partial_sum(edges_into.begin(), edges_into.end(), edges_into.begin());
  const auto is_first = [&](size_t node) {
    return static_cast<int64_t>(node) >= begin && static_cast<int64_t>(node) < end;
  };
  std::vector<bool> found(count), has_edges(count);
  std::vector<size_t> reached, next;
  for (int64_t node = begin; node < end; ++node) reached.push_back(static_cast<size_t>(node));
  for (const size_t node : reached) found[node] = true;
  for (size_t step = 0; step < steps; ++step) {
    next.clear();
    for (const size_t node : reached) {
      has_edges[node] = true;
      for (size_t e = edges_into[node]; e < edges_into[node + 1]; ++e) {
        const auto from = static_cast<size_t>(whole.from[e]);
        if (found[from]) continue;
        found[from] = true;
        next.push_back(from);
      }
    }
    std::swap(reached, next);
  }
  std::vector<size_t> kept;
  for (int64_t node = begin; node < end; ++node) kept.push_back(static_cast<size_t>(node));
  for (size_t node = 0; node < count; ++node)
    if (found[node] && !is_first(node)) kept.push_back(node);
  std::vector<int64_t> position(count, -1);
  for (size_t i = 0; i < kept.size(); ++i) position[kept[i]] = static_cast<int64_t>(i);
  Subgraph part;
  for (const size_t node : kept) {
    part.nodes.push_back(whole.nodes[node]);
    if (!has_edges[node]) continue;
    for (size_t e = edges_into[node]; e < edges_into[node + 1]; ++e) {
      part.from.push_back(position[static_cast<size_t>(whole.from[e])]);
      part.to.push_back(position[node]);
      part.position.push_back(whole.position[e]);
    }
  }
  return part;
}

}  // namespace

// Draws the nodes of a subgraph. Thread safety: draw() may be called by several threads.
struct SaintBatches::Sampler {
  Sampler(const GraphData& graph, GraphPart part, const SaintOptions& wanted)
      : options(wanted),
        edges(edges_of(graph, part), graph.nodes, loops_of_edges(wanted.aggregate)) {
    if (part == GraphPart::train && graph.train_edge_index.defined()) {
      pool = nodes_of(graph, part);
    } else {
      for (int64_t i = 0; i < graph.nodes; ++i) pool.push_back(i);
    }
    if (options.sampler == SaintSampler::node) weigh_nodes();
    if (options.sampler == SaintSampler::edge) weigh_edges();
  }

  // P(u) grows with the sum, over the targets of u's edges, of the square of u's share in the
  // target's mean. Each node counts as its own neighbour too, so that no probability is 0.
  void weigh_nodes() {
    std::vector<double> weight(static_cast<size_t>(edges.nodes()));
    const auto square = [&](int64_t node) {
      const double share = 1.0 / static_cast<double>(edges.degree(node) + 1);
      return share * share;
    };
    for (int64_t v = 0; v < edges.nodes(); ++v)
      edges.each(v, [&](int64_t u) { weight[static_cast<size_t>(u)] += square(v); });
    double sum = 0;
    for (const int64_t v : pool)
      cumulative.push_back(sum += weight[static_cast<size_t>(v)] + square(v));
  }

  void weigh_edges() {
    FRUGAL_CHECK(edges.edges() > 0, "[saint] expected a graph with edges to draw, got none");
    // A node without edges into it counts as a node of degree 1.
    const auto share = [&](int64_t node) {
      return 1.0 / static_cast<double>(std::max<int64_t>(edges.degree(node), 1));
    };
    double sum = 0;
    for (int64_t v = 0; v < edges.nodes(); ++v)
      edges.each(v, [&](int64_t u) { cumulative.push_back(sum += share(u) + share(v)); });
  }

  int64_t weighted(Draws& draws) const {
    const double at = draws.unit() * cumulative.back();
    const auto found = std::upper_bound(cumulative.begin(), cumulative.end(), at);
    return std::min(found - cumulative.begin(), static_cast<std::ptrdiff_t>(cumulative.size()) - 1);
  }

  Subgraph draw(RngKey key, Scratch& scratch) const {
    Draws draws(key);
    std::vector<int64_t> nodes;
    switch (options.sampler) {
      case SaintSampler::walk:
        for (int64_t r = 0; r < options.roots; ++r) {
          int64_t node = pool[static_cast<size_t>(draws.below(static_cast<int64_t>(pool.size())))];
          nodes.push_back(node);
          for (int64_t step = 0; step < options.length && edges.degree(node) > 0; ++step) {
            node = edges.from(edges.begin(node) + draws.below(edges.degree(node)));
            nodes.push_back(node);
          }
        }
        break;
      case SaintSampler::node:
        for (int64_t i = 0; i < options.nodes; ++i)
          nodes.push_back(pool[static_cast<size_t>(weighted(draws))]);
        break;
      case SaintSampler::edge:
        for (int64_t i = 0; i < options.edges; ++i) {
          const int64_t position = weighted(draws);
          nodes.push_back(edges.from(position));
          nodes.push_back(edges.to(position));
        }
    }
    return induce(edges, std::move(nodes), scratch);
  }

  SaintOptions options;
  InEdges edges;
  std::vector<int64_t> pool;       // the nodes to draw from
  std::vector<double> cumulative;  // weights of `pool`, or of edges by position
  Scratch of_consumer;
};

int64_t most_saint_draws(const GraphData& graph, GraphPart part, const SaintOptions& options) {
  const auto pool = [&] {
    const bool less = part == GraphPart::train && graph.train_edge_index.defined();
    return less ? static_cast<int64_t>(nodes_of(graph, part).size()) : graph.nodes;
  };
  switch (options.sampler) {
    case SaintSampler::edge: {
      const Tensor edges = edges_of(graph, part);
      return std::max(kFewDraws, edges.defined() && edges.dim() == 2 ? edges.size(1) : 0);
    }
    case SaintSampler::node:
      return std::max(kFewDraws, pool());
    case SaintSampler::walk:
      break;
  }
  const int64_t nodes = pool();
  const int64_t steps = std::max(kFewSteps, kStepsOfNode * nodes) / (options.length + 1);
  return std::clamp<int64_t>(steps, 1, std::max(kFewDraws, nodes));
}

static int64_t draws_of(const SaintOptions& options) {
  switch (options.sampler) {
    case SaintSampler::walk:
      return options.roots;
    case SaintSampler::node:
      return options.nodes;
    case SaintSampler::edge:
      break;
  }
  return options.edges;
}

SaintBatches::SaintBatches(const GraphData& graph, GraphPart part, const SaintOptions& options)
    : graph_(graph), options_(options) {
  check_graph("saint", graph);
  FRUGAL_CHECK(
      options.roots >= 1 && options.length >= 0 && options.nodes >= 1 && options.edges >= 1 &&
          options.coverage >= 1 && options.batches >= 0,
      "[saint] expected counts of at least 1, got roots {}, length {}, nodes {}, edges {}, "
      "coverage {}, batches {}",
      options.roots, options.length, options.nodes, options.edges, options.coverage,
      options.batches);
  const int64_t most = most_saint_draws(graph, part, options);
  const int64_t draws = draws_of(options);
  FRUGAL_CHECK(draws <= most,
               "[saint] expected at most {} draws for a subgraph of this graph, got {}", most,
               draws);
  wanted_ = mask_of(graph, part);
  samples_ = static_cast<int64_t>(nodes_of(graph, part).size());
  sampler_ = std::make_unique<Sampler>(graph, part, options);
  presample();
}

SaintBatches::~SaintBatches() = default;

void SaintBatches::presample() {
  const InEdges& edges = sampler_->edges;
  std::vector<int64_t> of_node(static_cast<size_t>(edges.nodes()));
  std::vector<int64_t> of_edge(static_cast<size_t>(edges.edges()));
  const auto pool = static_cast<int64_t>(sampler_->pool.size());
  int64_t drawn = 0, held = 0;
  const auto key = [&](int64_t index) {
    return batch_key(options_.seed, streams::kSaintEstimate, 0, static_cast<uint64_t>(index));
  };
  const Subgraph first = sampler_->draw(key(0), sampler_->of_consumer);
  const auto first_nodes = static_cast<int64_t>(first.nodes.size());
  const int64_t at_once = std::clamp<int64_t>(kBlockNodes / first_nodes, 16, 1024);
  std::vector<Subgraph> block(static_cast<size_t>(at_once));
  while (held < options_.coverage * pool) {
    parallel_for(0, at_once, 4, [&](int64_t begin, int64_t end) {
      Scratch scratch;
      for (int64_t i = begin; i < end; ++i)
        block[static_cast<size_t>(i)] = sampler_->draw(key(drawn + i), scratch);
    });
    for (const Subgraph& subgraph : block) {
      for (const int64_t node : subgraph.nodes) ++of_node[static_cast<size_t>(node)];
      for (const int64_t position : subgraph.position) ++of_edge[static_cast<size_t>(position)];
      held += static_cast<int64_t>(subgraph.nodes.size());
    }
    drawn += at_once;
  }
  batches_ = options_.batches;
  if (batches_ == 0)  // pool / (held / drawn), rounded up
    batches_ = std::max<int64_t>(1, (pool * drawn + held - 1) / held);

  const auto seen = [](int64_t count) { return static_cast<double>(std::max<int64_t>(count, 1)); };
  const uint8_t* wanted = wanted_.data<uint8_t>();
  for (int64_t v = 0; v < edges.nodes(); ++v) {
    const double times = seen(of_node[static_cast<size_t>(v)]);
    // 1 / (the part's nodes * the probability of v)
    const double weight = static_cast<double>(drawn) / (times * static_cast<double>(samples_));
    node_weight_.push_back(wanted[v] != 0 ? static_cast<float>(weight) : 0.0f);
    for (int64_t p = edges.begin(v); p < edges.end(v); ++p) {
      // 1 / (the probability of the edge, given that v is in the batch)
      const double drawings = times / seen(of_edge[static_cast<size_t>(p)]);
      edge_norm_.push_back(
          static_cast<float>(drawings * coefficient(edges, options_.aggregate, edges.from(p), v)));
    }
  }
}

Batch SaintBatches::make(int64_t epoch, int64_t batch) {
  const InEdges& edges = sampler_->edges;
  const GraphAggregate aggregate = options_.aggregate;
  Subgraph subgraph;
  if (gets_whole())
    subgraph = sampler_->draw(batch_key(options_.seed, streams::kSaint,
                                        static_cast<uint64_t>(epoch), static_cast<uint64_t>(batch)),
                              sampler_->of_consumer);
  if (aggregate == GraphAggregate::symmetric_loops) add_loops(subgraph);
  Batch out = make_batch(graph_, subgraph, wanted_);
  const CategoryScope category(Category::input);
  if (aggregate != GraphAggregate::none) {
    const Tensor norm = Tensor::empty({static_cast<int64_t>(subgraph.to.size())});
    for (size_t e = 0; e < subgraph.to.size(); ++e) {
      const int64_t position = subgraph.position[e];
      const int64_t node = subgraph.nodes[static_cast<size_t>(subgraph.to[e])];
      // A loop is in the batch whenever its node is.
      norm.mut<float>()[e] = position >= 0
                                 ? edge_norm_[static_cast<size_t>(position)]
                                 : static_cast<float>(coefficient(edges, aggregate, node, node));
    }
    out.extras.emplace_back("edge_norm", norm);
  }
  const Tensor weights = Tensor::empty({static_cast<int64_t>(subgraph.nodes.size())});
  std::transform(subgraph.nodes.begin(), subgraph.nodes.end(), weights.mut<float>(),
                 [&](int64_t node) { return node_weight_[static_cast<size_t>(node)]; });
  out.extras.emplace_back("node_weight", weights);
  return out;
}

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
  edges_ = std::make_unique<InEdges>(edges_of(graph, part), graph.nodes,
                                     loops_of_edges(options.aggregate));
  local_.assign(static_cast<size_t>(graph.nodes), -1);
  const auto count = static_cast<int64_t>(nodes_.size());
  batches_ = count / options.batch_size;
  if (!options.drop_last && count % options.batch_size != 0) ++batches_;
  if (batches_ == 0)
    throw OptionError("batch_size", fmt::format("expected at most {} nodes with drop_last, got "
                                                "{}",
                                                count, options.batch_size));
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
  int64_t seeds = std::min(options_.batch_size, count - begin);
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
  if (!share().is_whole()) {
    const int64_t first = share().begin(seeds), end = share().end(seeds);
    subgraph = leading_to(subgraph, first, end, options_.fanouts.size());
    seeds = end - first;
  }
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
    // 1 / (the probability of the edge, given that edges into its target are drawn); 1 for a loop.
    const double drawings = subgraph.position[e] < 0 ? 1.0
                                                     : static_cast<double>(edges_->degree(node)) /
                                                           static_cast<double>(into[to]);
    norm.mut<float>()[e] =
        static_cast<float>(drawings * coefficient(*edges_, aggregate, sender, node));
  }
  out.extras.emplace_back("edge_norm", norm);
  return out;
}

ClusterBatches::ClusterBatches(const GraphData& graph, GraphPart part,
                               const ClusterOptions& options)
    : graph_(graph), options_(options), wanted_(mask_of(graph, part)) {
  check_graph("clusters", graph);
  samples_ = static_cast<int64_t>(nodes_of(graph, part).size());
  const Tensor edge_index = edges_of(graph, part);
  edges_ = std::make_unique<InEdges>(edge_index, graph.nodes);
  // The nodes to cut into clusters. If training may use fewer edges, only the training nodes, with
  // new numbers.
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
  const std::vector<int32_t> parts =
      partition(make_edge_index(count, from, to, true, SelfLoops::drop), count, cut);
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
  for (int64_t i = begin; i < end && gets_whole(); ++i) {
    const auto& cluster = clusters_[static_cast<size_t>(order_[static_cast<size_t>(i)])];
    nodes.insert(nodes.end(), cluster.begin(), cluster.end());
  }
  return make_batch(graph_, induce(*edges_, std::move(nodes), scratch_), wanted_);
}

}  // namespace frugal::data
