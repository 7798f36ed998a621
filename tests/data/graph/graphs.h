// A small graph for tests of batches and samplers.
#pragma once
#include <algorithm>
#include <vector>

#include "core/rng.h"
#include "data/graph/graph_data.h"
#include "data/graph/graph_split.h"

namespace frugal_test {

using namespace frugal;
using namespace frugal::data;

using Ints = std::vector<int64_t>;

inline Ints ints(const Tensor& tensor) {
  return Ints(tensor.data<int64_t>(), tensor.data<int64_t>() + tensor.numel());
}

// Degrees from 1 to about 12, one isolated node (the last), feature i of node v: v + i / 10.
// With `loops`, every fourth node has a self-loop.
inline GraphData small_graph(int64_t nodes = 40, bool sparse = false, bool loops = false) {
  GraphData graph;
  graph.nodes = nodes;
  graph.classes = 3;
  Ints from, to, y;
  for (int64_t v = 1; v < nodes - 1; ++v) {
    for (int64_t k = 0; k < 3; ++k) {  // early nodes get most of the edges
      const auto below = static_cast<uint64_t>(v);
      const uint64_t u = std::min(uniform_int({5, 0}, static_cast<uint64_t>(v * 8 + k), below),
                                  uniform_int({5, 1}, static_cast<uint64_t>(v * 8 + k), below));
      from.push_back(v);
      to.push_back(static_cast<int64_t>(u));
    }
  }
  if (loops)
    for (int64_t v = 0; v < nodes; v += 4) {
      from.push_back(v);
      to.push_back(v);
    }
  graph.edge_index = make_edge_index(nodes, from, to, true);
  std::vector<float> x;
  for (int64_t v = 0; v < nodes; ++v) {
    y.push_back(v % 3);
    for (int i = 0; i < 2; ++i)
      x.push_back(static_cast<float>(v) + 0.1f * static_cast<float>(i) + 1);
  }
  graph.y = Tensor::from(y, {nodes});
  set_features("test", graph, Tensor::from(x, {nodes, 2}), {false, sparse});
  random_split(graph, {0.5, 0.25, 0.25, 0, 0, 0, 3});
  return graph;
}

}  // namespace frugal_test
