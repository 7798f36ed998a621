#include "data/graph/npz_graph.h"

#include <algorithm>

#include "core/words/quoted.h"
#include "data/formats/npy.h"

namespace frugal::data {

namespace {

// The extents of a sparse matrix. Compares them with the headers of its arrays, whose data are not
// unpacked yet. So an array of a wrong size is refused before it takes memory.
Shape csr_shape(const NpzFile& file, const std::string& name) {
  const NpyInfo info = file.info(name + "shape");
  FRUGAL_CHECK(info.shape == Shape{2} && !is_floating(info.dtype),
               "[npz] expected a shape of 2 extents in {}, got {} {}", file.path(), info.shape,
               name_of(info.dtype));
  const Tensor shape = to_i64(file.path(), file.read(name + "shape"));
  const int64_t rows = shape.data<int64_t>()[0], cols = shape.data<int64_t>()[1];
  const Shape ends = file.info(name + "indptr").shape;
  const Shape columns = file.info(name + "indices").shape, values = file.info(name + "data").shape;
  int64_t most = 0;
  const bool fits = rows >= 0 && cols >= 0 && ends.dim() == 1 && ends[0] - 1 == rows &&
                    columns.dim() == 1 && values == columns &&
                    (__builtin_mul_overflow(rows, cols, &most) || columns[0] <= most);
  FRUGAL_CHECK(
      fits,
      "[csr] expected row_ptr [rows + 1], as many columns as values, and at most one value "
      "an element in {}, got {} rows, {} columns, arrays {} {} {}",
      file.path(), rows, cols, ends, columns, values);
  return {rows, cols};
}

}  // namespace

CsrMatrix read_npz_csr(const NpzFile& file, const std::string& name) {
  // SciPy writes its matrices by columns in arrays of equal names: they would come out transposed.
  if (const std::string format = name + "format"; file.contains(format)) {
    const std::string found = file.text(format);
    FRUGAL_CHECK(found == "csr",
                 "[npz] expected a sparse matrix by rows (csr) in {}, got {}; save matrix.tocsr()",
                 file.path(), in_quotes(found));
  }
  const Shape shape = csr_shape(file, name);
  return make_csr(file.path(), shape[0], shape[1], file.read(name + "indptr"),
                  file.read(name + "indices"), file.read(name + "data"));
}

GraphData open_npz_graph(const std::string& path, const GraphOptions& options) {
  const NpzFile file = NpzFile::open(path);
  const Shape links = csr_shape(file, "adj_"), words = csr_shape(file, "attr_"),
              labels = file.info("labels").shape;
  FRUGAL_CHECK(links[1] == links[0] && words[0] == links[0] && labels == Shape{links[0]},
               "[npz] expected an adjacency [V, V], features [V, F] and labels [V] in {}, got {}, "
               "{} and {}",
               path, links, words, labels);
  const CsrMatrix adjacency = read_npz_csr(file, "adj_");
  CsrMatrix features = read_npz_csr(file, "attr_");
  GraphData graph;
  graph.nodes = adjacency.rows;
  graph.y = to_i64(path, file.read("labels"));
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
