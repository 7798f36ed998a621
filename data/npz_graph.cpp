#include "data/npz_graph.h"

#include <algorithm>

#include "data/npy.h"

namespace frugal::data {

CsrMatrix read_npz_csr(const NpzFile& file, const std::string& name) {
  const Tensor shape = to_i64(file.path(), file.read(name + "shape"));
  FRUGAL_CHECK(shape.shape() == Shape{2}, "[npz] expected a shape of 2 extents in {}, got {}",
               file.path(), describe(shape));
  return make_csr(file.path(), shape.data<int64_t>()[0], shape.data<int64_t>()[1],
                  file.read(name + "indptr"), file.read(name + "indices"),
                  file.read(name + "data"));
}

GraphData open_npz_graph(const std::string& path, const GraphOptions& options) {
  const NpzFile file = NpzFile::open(path);
  const CsrMatrix adjacency = read_npz_csr(file, "adj_");
  CsrMatrix features = read_npz_csr(file, "attr_");
  GraphData graph;
  graph.nodes = adjacency.rows;
  graph.y = to_i64(path, file.read("labels"));
  FRUGAL_CHECK(adjacency.cols == graph.nodes && features.rows == graph.nodes &&
                   graph.y.shape() == Shape{graph.nodes},
               "[npz] expected an adjacency [V, V], features [V, F] and labels [V] in {}, got [{}, "
               "{}], [{}, {}] and {}",
               path, adjacency.rows, adjacency.cols, features.rows, features.cols, graph.y.shape());
  const int64_t* y = graph.y.data<int64_t>();
  for (int64_t i = 0; i < graph.nodes; ++i) {
    FRUGAL_CHECK(y[i] >= 0 && y[i] <= graph.nodes,
                 "[npz] expected labels in [0, {}] in {}, got {} at node {}", graph.nodes, path,
                 y[i], i);
    graph.classes = std::max(graph.classes, y[i] + 1);
  }
  std::vector<int64_t> from;
  from.reserve(adjacency.col.size());
  for (int64_t r = 0; r < graph.nodes; ++r)
    from.insert(from.end(),
                static_cast<size_t>(adjacency.row_ptr[static_cast<size_t>(r) + 1] -
                                    adjacency.row_ptr[static_cast<size_t>(r)]),
                r);
  graph.edge_index = make_edge_index(graph.nodes, from, adjacency.col, true);
  set_features(graph, std::move(features), options);
  return graph;
}

}  // namespace frugal::data
