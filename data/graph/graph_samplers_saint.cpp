#include <algorithm>
#include <cmath>
#include <functional>

#include "core/parallel.h"
#include "core/random_streams.h"
#include "data/graph/graph_samplers.h"
#include "data/graph/graph_samplers_subgraph.h"

namespace frugal::data {
namespace {

// Subgraphs are drawn side by side, so many that they hold about kBlockNodes nodes, before their
// counts are added: what is drawn does not depend on the number of threads.
constexpr int64_t kBlockNodes = 65536;

// Draws beyond the size of the graph find next to nothing new, and cost time: of nodes or edges, or
// of roots, and of steps of all walks.
constexpr int64_t kFewDraws = 4096, kFewSteps = 65536, kStepsOfNode = 64;

}  // namespace

// Draws the nodes of a subgraph. Thread safety: draw() may be called by several threads.
struct SaintBatches::Sampler {
  Sampler(const GraphData& graph, GraphPart part, const SaintOptions& wanted)
      : options(wanted), edges(edges_of(graph, part), graph.nodes) {
    if (part == GraphPart::train && graph.train_edge_index.defined()) {
      pool = nodes_of(graph, part);
    } else {
      for (int64_t i = 0; i < graph.nodes; ++i) pool.push_back(i);
    }
    if (options.sampler == SaintSampler::node) weigh_nodes();
    if (options.sampler == SaintSampler::edge) weigh_edges();
  }

  // P(u) ~ sum over what u sends to of the square of its share there. Every node counts as one of
  // its own neighbours, so that none has probability 0.
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
    // An end that nothing sends to still has a degree as the one that sends.
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
  std::vector<int64_t> pool;       // what is drawn from
  std::vector<double> cumulative;  // weights of `pool`, or of edges by position
  Scratch of_consumer;
};

int64_t most_saint_draws(const GraphData& graph, GraphPart part, const SaintOptions& options) {
  if (options.sampler == SaintSampler::edge) {
    const Tensor edges = edges_of(graph, part);
    return std::max(kFewDraws, edges.defined() && edges.dim() == 2 ? edges.size(1) : 0);
  }
  const bool less = part == GraphPart::train && graph.train_edge_index.defined();
  const auto pool = less ? static_cast<int64_t>(nodes_of(graph, part).size()) : graph.nodes;
  if (options.sampler == SaintSampler::node) return std::max(kFewDraws, pool);
  const int64_t steps = std::max(kFewSteps, kStepsOfNode * pool) / (options.length + 1);
  return std::clamp<int64_t>(steps, 1, std::max(kFewDraws, pool));
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
  const int64_t draws = options.sampler == SaintSampler::walk   ? options.roots
                        : options.sampler == SaintSampler::node ? options.nodes
                                                                : options.edges;
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
  Subgraph subgraph =
      sampler_->draw(batch_key(options_.seed, streams::kSaint, static_cast<uint64_t>(epoch),
                               static_cast<uint64_t>(batch)),
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

}  // namespace frugal::data
