#include "data/graph/subgraph.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace frugal::data {

InEdges::InEdges(const Tensor& edge_index, int64_t nodes, SelfLoops loops)
    : row_ptr_(static_cast<size_t>(nodes) + 1) {
  FRUGAL_CHECK(edge_index.defined() && edge_index.dim() == 2 && edge_index.size(0) == 2 &&
                   edge_index.dtype() == DType::i64 && edge_index.is_contiguous(),
               "[graph] expected an edge_index [2, E] i64, got {}",
               edge_index.defined() ? describe(edge_index) : "none");
  const int64_t count = edge_index.size(1);
  const int64_t *source = edge_index.data<int64_t>(), *target = source + count;
  const auto is_edge = [&](int64_t i) {
    return loops == SelfLoops::keep || source[i] != target[i];
  };
  for (int64_t i = 0; i < count; ++i) {
    FRUGAL_CHECK(source[i] >= 0 && source[i] < nodes && target[i] >= 0 && target[i] < nodes,
                 "[graph] expected nodes in [0, {}), got edge {} from {} to {}", nodes, i,
                 source[i], target[i]);
    if (is_edge(i)) ++row_ptr_[static_cast<size_t>(target[i]) + 1];
  }
  std::partial_sum(row_ptr_.begin(), row_ptr_.end(), row_ptr_.begin());
  from_.resize(static_cast<size_t>(row_ptr_.back()));
  std::vector<int64_t> next(row_ptr_.begin(), row_ptr_.end() - 1);
  for (int64_t i = 0; i < count; ++i)
    if (is_edge(i)) from_[static_cast<size_t>(next[static_cast<size_t>(target[i])]++)] = source[i];
}

int64_t InEdges::to(int64_t position) const {
  return std::upper_bound(row_ptr_.begin(), row_ptr_.end(), position) - row_ptr_.begin() - 1;
}

Subgraph induce(const InEdges& edges, std::vector<int64_t> nodes, Scratch& scratch) {
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  scratch.resize(static_cast<size_t>(edges.nodes()), -1);
  for (size_t i = 0; i < nodes.size(); ++i)
    scratch[static_cast<size_t>(nodes[i])] = static_cast<int32_t>(i);
  Subgraph out;
  for (size_t i = 0; i < nodes.size(); ++i)
    for (int64_t p = edges.begin(nodes[i]); p < edges.end(nodes[i]); ++p) {
      const int32_t local = scratch[static_cast<size_t>(edges.from(p))];
      if (local < 0) continue;
      out.from.push_back(local);
      out.to.push_back(static_cast<int64_t>(i));
      out.position.push_back(p);
    }
  for (const int64_t node : nodes) scratch[static_cast<size_t>(node)] = -1;
  out.nodes = std::move(nodes);
  return out;
}

Batch make_batch(const GraphData& graph, const Subgraph& subgraph, const Tensor& wanted,
                 int64_t seeds) {
  const auto count = static_cast<int64_t>(subgraph.nodes.size());
  const auto edges = static_cast<int64_t>(subgraph.from.size());
  const int64_t *nodes = subgraph.nodes.data(), targets = seeds < 0 ? count : seeds;
  const CategoryScope category(Category::input);
  Batch batch;
  if (graph.sparse()) {
    const int64_t* row_ptr = graph.x_row_ptr.data<int64_t>();
    std::vector<int64_t> ends{0};
    for (int64_t i = 0; i < count; ++i)
      ends.push_back(ends.back() + row_ptr[nodes[i] + 1] - row_ptr[nodes[i]]);
    const Tensor col = Tensor::empty({ends.back()}, DType::i64),
                 value = Tensor::empty({ends.back()});
    for (int64_t i = 0; i < count; ++i) {
      const int64_t from = row_ptr[nodes[i]], to = ends[static_cast<size_t>(i)];
      const int64_t length = ends[static_cast<size_t>(i) + 1] - to;
      std::copy_n(graph.x_col.data<int64_t>() + from, length, col.mut<int64_t>() + to);
      std::copy_n(graph.x_value.data<float>() + from, length, value.mut<float>() + to);
    }
    batch.input = Tensor::empty({count, 0});
    batch.extras = {
        {"x_row_ptr", Tensor::from(ends, {count + 1})}, {"x_col", col}, {"x_value", value}};
  } else {
    const int64_t width = graph.features;
    batch.input = Tensor::empty({count, width});
    for (int64_t i = 0; i < count; ++i)
      std::copy_n(graph.x.data<float>() + nodes[i] * width, width,
                  batch.input.mut<float>() + i * width);
  }
  const bool several = graph.y.dtype() != DType::i64;
  const Shape shape = several ? Shape{count, graph.classes} : Shape{count};
  batch.target = Tensor::full(shape, static_cast<double>(kIgnored), graph.y.dtype());
  for (int64_t i = 0; i < targets; ++i) {
    if (wanted.data<uint8_t>()[nodes[i]] == 0) continue;
    if (several) {
      std::copy_n(graph.y.data<float>() + nodes[i] * graph.classes, graph.classes,
                  batch.target.mut<float>() + i * graph.classes);
    } else {
      batch.target.mut<int64_t>()[i] = graph.y.data<int64_t>()[nodes[i]];
    }
  }
  const Tensor edge_index = Tensor::empty({2, edges}, DType::i64);
  std::copy(subgraph.from.begin(), subgraph.from.end(), edge_index.mut<int64_t>());
  std::copy(subgraph.to.begin(), subgraph.to.end(), edge_index.mut<int64_t>() + edges);
  batch.extras.emplace_back("edge_index", edge_index);
  batch.extras.emplace_back("node_id", Tensor::from(subgraph.nodes, {count}));
  return batch;
}

double coefficient(const InEdges& edges, GraphAggregate aggregate, int64_t from, int64_t to) {
  const double loops = aggregate == GraphAggregate::symmetric_loops ? 1 : 0;
  // A node without edges into it counts as a node of degree 1.
  const auto degree = [&](int64_t node) {
    return std::max(static_cast<double>(edges.degree(node)) + loops, 1.0);
  };
  switch (aggregate) {
    case GraphAggregate::mean:
      return 1 / degree(to);
    case GraphAggregate::symmetric:
    case GraphAggregate::symmetric_loops:
      return 1 / std::sqrt(degree(from) * degree(to));
    case GraphAggregate::sum:
    case GraphAggregate::none:
      break;
  }
  return 1;
}

void add_loops(Subgraph& subgraph) {
  for (size_t i = 0; i < subgraph.nodes.size(); ++i) {
    subgraph.from.push_back(static_cast<int64_t>(i));
    subgraph.to.push_back(static_cast<int64_t>(i));
    subgraph.position.push_back(-1);
  }
}

RngKey batch_key(uint64_t seed, const RandomStream& stream, uint64_t epoch, uint64_t batch) {
  const auto word = [](RngKey key, uint64_t index) {
    const auto words = philox(key, index);
    return words[0] | static_cast<uint64_t>(words[1]) << 32;
  };
  return {word({word(stream.key(seed), 0), epoch}, batch), stream.first};
}

double Draws::unit() {
  const auto words = philox(key_, next_++);
  const uint64_t bits = words[0] | static_cast<uint64_t>(words[1]) << 32;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace frugal::data
