#include "data/graph/npz_graph.h"

#include <algorithm>
#include <cmath>

#include "core/dtype_switch.h"
#include "core/log.h"
#include "core/words/nouns.h"
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

// SciPy writes its matrices by columns in arrays of equal names: they would come out transposed.
void expect_rows(const NpzFile& file, const std::string& name) {
  const std::string format = name + "format";
  if (!file.contains(format)) return;
  const std::string found = file.text(format);
  FRUGAL_CHECK(found == "csr",
               "[npz] expected a sparse matrix by rows (csr) in {}, got {}; save matrix.tocsr()",
               file.path(), in_quotes(found));
}

// Values of an adjacency: 1 for each edge, 0 where there is none.
struct EdgeMarks {
  Tensor values;
  int64_t zeros = 0, weights = 0;  // how many are 0, and how many neither 0 nor 1
  int64_t first_weight = -1;
};

EdgeMarks edge_marks(const Tensor& values) {
  const CategoryScope category(Category::input);
  EdgeMarks edges;
  edges.values = Tensor::empty(values.shape());
  float* out = edges.values.mut<float>();
  with_dtype(values.dtype(), [&](auto any) {
    using T = decltype(any);
    const T* in = values.data<T>();
    for (int64_t i = 0; i < values.numel(); ++i) {
      const auto value = static_cast<float>(in[i]);
      bool edge = value != 0;
      if constexpr (std::is_same_v<T, double>) edge = in[i] != 0;  // below what f32 holds, too
      if (!edge) ++edges.zeros;
      if (edge && value != 1 && edges.weights++ == 0) edges.first_weight = i;
      out[i] = std::isfinite(value) ? static_cast<float>(edge) : value;
    }
  });
  return edges;
}

void drop_zeros(CsrMatrix& csr) {
  size_t kept = 0;
  int64_t begin = 0;
  for (size_t r = 0; r < static_cast<size_t>(csr.rows); ++r) {
    const int64_t end = csr.row_ptr[r + 1];
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      if (csr.value[i] != 0) {
        csr.col[kept] = csr.col[i];
        csr.value[kept++] = csr.value[i];
      }
    begin = end;
    csr.row_ptr[r + 1] = static_cast<int64_t>(kept);
  }
  csr.col.resize(kept);
  csr.value.resize(kept);
}

}  // namespace

CsrMatrix read_npz_csr(const NpzFile& file, const std::string& name) {
  expect_rows(file, name);
  const Shape shape = csr_shape(file, name);
  return make_csr(file.path(), shape[0], shape[1], file.read(name + "indptr"),
                  file.read(name + "indices"), file.read(name + "data"));
}

CsrMatrix read_npz_adjacency(const NpzFile& file, const std::string& name) {
  expect_rows(file, name);
  const Shape shape = csr_shape(file, name);
  const Tensor row_ptr = file.read(name + "indptr"), col = file.read(name + "indices"),
               values = file.read(name + "data");
  const EdgeMarks edges = edge_marks(values);
  CsrMatrix csr = make_csr(file.path(), shape[0], shape[1], row_ptr, col, edges.values);
  const std::string where = fmt::format("{}: {}data", in_quotes(file.path()), name);
  const int64_t count = values.numel();
  FRUGAL_CHECK(count == 0 || edges.zeros < count,
               "[npz] {}: expected values other than 0, since 0 is no edge, got {} of 0", where,
               with_noun(count, "value"));
  if (edges.zeros > 0) {
    drop_zeros(csr);
    log().warn("[npz] {}: {} of {} values {} 0, which is no edge", where, edges.zeros, count,
               edges.zeros == 1 ? "is" : "are");
  }
  if (edges.weights > 0) {
    const Tensor ends = to_i64(file.path(), row_ptr), columns = to_i64(file.path(), col);
    const int64_t *begin = ends.data<int64_t>(), at = edges.first_weight;
    log().warn(
        "[npz] {}: {} of {} values {} not 1, the first in row {}, column {}; edges have no "
        "weights here, so it counts as 1",
        where, edges.weights, count, edges.weights == 1 ? "is" : "are",
        std::upper_bound(begin, begin + ends.numel(), at) - begin - 1, columns.data<int64_t>()[at]);
  }
  return csr;
}

GraphData open_npz_graph(const std::string& path, const GraphOptions& options) {
  const NpzFile file = NpzFile::open(path);
  const Shape links = csr_shape(file, "adj_"), words = csr_shape(file, "attr_"),
              labels = file.info("labels").shape;
  FRUGAL_CHECK(links[1] == links[0] && words[0] == links[0] && labels == Shape{links[0]},
               "[npz] expected an adjacency [V, V], features [V, F] and labels [V] in {}, got {}, "
               "{} and {}",
               path, links, words, labels);
  const CsrMatrix adjacency = read_npz_adjacency(file, "adj_");
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
  warn_of_empty_classes("npz", path, graph);
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
