#include "data/graph/graph_split.h"

#include <algorithm>
#include <cmath>

#include "core/random/random_streams.h"
#include "data/dataset.h"
#include "data/loader.h"

namespace frugal::data {
namespace {

// The nodes with a label; if nodes have several, those with at least one that is known.
std::vector<int64_t> labelled(const GraphData& graph) {
  std::vector<int64_t> nodes;
  const bool several = graph.y.dtype() != DType::i64;
  for (int64_t i = 0; i < graph.nodes; ++i) {
    bool known = false;
    if (several) {
      const float* row = graph.y.data<float>() + i * graph.classes;
      known = std::any_of(row, row + graph.classes,
                          [](float y) { return y != static_cast<float>(kIgnored); });
    } else {
      known = graph.y.data<int64_t>()[i] != kIgnored;
    }
    if (known) nodes.push_back(i);
  }
  return nodes;
}

}  // namespace

void random_split(GraphData& graph, const GraphSplit& options) {
  FRUGAL_CHECK(graph.y.defined(), "[graph_split] expected a graph with labels, got none");
  std::vector<int64_t> nodes = labelled(graph);
  const auto count = static_cast<int64_t>(nodes.size());
  const std::vector<int64_t> order = shuffled(count, streams::kNodeSplit.key(options.seed));
  std::vector<int64_t> parts[3], rest;
  if (options.train_per_class > 0) {
    FRUGAL_CHECK(graph.y.dtype() == DType::i64,
                 "[graph_split] expected one label a node for train_per_class, got several");
    FRUGAL_CHECK(options.val_count >= 0 && options.test_count >= 0,
                 "[graph_split] expected counts of at least 0, got {} and {}", options.val_count,
                 options.test_count);
    std::vector<int64_t> taken(static_cast<size_t>(graph.classes));
    for (const int64_t i : order) {
      const int64_t node = nodes[static_cast<size_t>(i)];
      int64_t& of_class = taken[static_cast<size_t>(graph.y.data<int64_t>()[node])];
      if (of_class < options.train_per_class) {
        ++of_class;
        parts[0].push_back(node);
      } else {
        rest.push_back(node);
      }
    }
    for (size_t c = 0; c < taken.size(); ++c)
      FRUGAL_CHECK(taken[c] == options.train_per_class,
                   "[graph_split] expected {} nodes of each class, got {} of class {}",
                   options.train_per_class, taken[c], c);
    const auto left = static_cast<int64_t>(rest.size());
    const int64_t test = options.test_count > 0 ? options.test_count
                                                : std::max<int64_t>(left - options.val_count, 0);
    FRUGAL_CHECK(options.val_count + test <= left,
                 "[graph_split] expected at most {} nodes to validate and test, got {} and {}",
                 left, options.val_count, test);
    parts[1].assign(rest.begin(), rest.begin() + options.val_count);
    parts[2].assign(rest.begin() + options.val_count, rest.begin() + options.val_count + test);
  } else {
    const double shares[3] = {options.train, options.val, options.test};
    for (const double share : shares)
      FRUGAL_CHECK(share >= 0 && share <= 1, "[graph_split] expected shares in [0, 1], got {}",
                   share);
    FRUGAL_CHECK(options.train + options.val + options.test <= 1 + 1e-9,
                 "[graph_split] expected shares that sum to at most 1, got {} + {} + {}",
                 options.train, options.val, options.test);
    double until = 0;
    int64_t begin = 0;
    for (int part = 0; part < 3;
         ++part) {  // rounds borders, not sizes, so shares that sum to 1 take all nodes
      until += shares[part];
      const int64_t end =
          std::min(count, static_cast<int64_t>(std::lround(until * static_cast<double>(count))));
      for (int64_t i = begin; i < end; ++i)
        parts[part].push_back(nodes[static_cast<size_t>(order[static_cast<size_t>(i)])]);
      begin = std::max(begin, end);
    }
  }
  FRUGAL_CHECK(!parts[0].empty(), "[graph_split] expected training nodes, got none of {}", count);
  graph.train_mask = make_mask("the split", graph.nodes, parts[0]);
  graph.val_mask = make_mask("the split", graph.nodes, parts[1]);
  graph.test_mask = make_mask("the split", graph.nodes, parts[2]);
}

}  // namespace frugal::data
