#include "data/graph/graph_data.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/log.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "data/formats/npy.h"

namespace frugal::data {
namespace {

// Limits of dense features: a small file must not expand to a large tensor of zeros.
constexpr int64_t kManyElements = int64_t{1} << 28, kSparsest = 4096;

// Scales a row by 1 / the sum of its absolute values: the sum of values of both signs may be next
// to 0 or negative. The sum is in f64, so it does not depend on the order of reading.
template <class Each>
float row_scale(int64_t begin, int64_t end, const Each& value) {
  double sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += std::abs(static_cast<double>(value(i)));
  return sum == 0 ? 0.0f : static_cast<float>(1.0 / sum);
}

template <class T>
Tensor to_tensor(const std::vector<T>& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())});
}

// Sorts a row's columns and adds up values of equal columns.
void tidy_rows(CsrMatrix& csr) {
  bool tidy = true;
  for (int64_t r = 0; r < csr.rows && tidy; ++r)
    for (int64_t i = csr.row_ptr[static_cast<size_t>(r)] + 1;
         i < csr.row_ptr[static_cast<size_t>(r) + 1]; ++i)
      tidy = tidy && csr.col[static_cast<size_t>(i - 1)] < csr.col[static_cast<size_t>(i)];
  if (tidy) return;
  std::vector<size_t> order(csr.col.size());
  std::iota(order.begin(), order.end(), size_t{0});
  CsrMatrix out{csr.rows, csr.cols, {0}, {}, {}};
  for (size_t r = 0; r < static_cast<size_t>(csr.rows); ++r) {
    const auto begin = order.begin() + csr.row_ptr[r], end = order.begin() + csr.row_ptr[r + 1];
    std::stable_sort(begin, end, [&](size_t a, size_t b) { return csr.col[a] < csr.col[b]; });
    const size_t first = out.col.size();
    for (auto i = begin; i != end; ++i) {
      if (out.col.size() > first && out.col.back() == csr.col[*i]) {
        out.value.back() += csr.value[*i];
      } else {
        out.col.push_back(csr.col[*i]);
        out.value.push_back(csr.value[*i]);
      }
    }
    out.row_ptr.push_back(static_cast<int64_t>(out.col.size()));
  }
  csr = std::move(out);
}

}  // namespace

CsrMatrix make_csr(const std::string& where, int64_t rows, int64_t cols, const Tensor& row_ptr,
                   const Tensor& col, const Tensor& value) {
  FRUGAL_CHECK(
      rows >= 0 && cols >= 0 && row_ptr.dim() == 1 && row_ptr.size(0) - 1 == rows &&
          col.dim() == 1 && value.shape() == col.shape(),
      "[csr] expected row_ptr [rows + 1] and as many columns as values in {}, got {} rows, "
      "{} columns, arrays {} {} {}",
      where, rows, cols, row_ptr.shape(), col.shape(), value.shape());
  const auto copy = [&](const Tensor& tensor) {
    const Tensor wide = to_i64(where, tensor);
    return std::vector<int64_t>(wide.data<int64_t>(), wide.data<int64_t>() + wide.numel());
  };
  const Tensor floats = to_f32(value);
  CsrMatrix csr{rows, cols, copy(row_ptr), copy(col),
                std::vector<float>(floats.data<float>(), floats.data<float>() + floats.numel())};
  const auto count = static_cast<int64_t>(csr.col.size());
  FRUGAL_CHECK(csr.row_ptr.front() == 0 && csr.row_ptr.back() == count,
               "[csr] expected row_ptr from 0 to {} in {}, got {} to {}", count, where,
               csr.row_ptr.front(), csr.row_ptr.back());
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r)
    FRUGAL_CHECK(csr.row_ptr[r] <= csr.row_ptr[r + 1],
                 "[csr] expected an ascending row_ptr in {}, got {} after {} at row {}", where,
                 csr.row_ptr[r + 1], csr.row_ptr[r], r);
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r)
    for (int64_t k = csr.row_ptr[r]; k < csr.row_ptr[r + 1]; ++k) {
      const auto i = static_cast<size_t>(k);
      FRUGAL_CHECK(csr.col[i] >= 0 && csr.col[i] < cols,
                   "[csr] expected columns in [0, {}) in {}, got {} in row {}", cols, where,
                   csr.col[i], r);
      FRUGAL_CHECK(std::isfinite(csr.value[i]),
                   "[csr] expected finite values in {}, got {} at row {}, column {}", where,
                   csr.value[i], r, csr.col[i]);
    }
  tidy_rows(csr);
  return csr;
}

int64_t most_classes(const GraphData& graph) { return std::max<int64_t>(4096, graph.nodes); }

void warn_of_empty_classes(const char* op, const std::string& where, const GraphData& graph) {
  FRUGAL_ASSERT(graph.y.dtype() == DType::i64);
  std::vector<bool> seen(static_cast<size_t>(graph.classes));
  const int64_t* y = graph.y.data<int64_t>();
  for (int64_t i = 0; i < graph.y.numel(); ++i)
    if (y[i] >= 0) seen[static_cast<size_t>(y[i])] = true;
  const auto empty = std::count(seen.begin(), seen.end(), false);
  if (empty == 0) return;
  const auto first = std::find(seen.begin(), seen.end(), false) - seen.begin();
  log().warn(
      "[{}] {}: no node has the label {}, and the highest one is {}; the network gets {}, of "
      "which {} no node. Labels count from 0",
      op, in_quotes(where), first, graph.classes - 1, with_noun(graph.classes, "class", "classes"),
      empty == 1 ? "1 has" : fmt::format("{} have", empty));
}

void set_features(GraphData& graph, CsrMatrix features, const GraphOptions& options) {
  FRUGAL_ASSERT(features.rows == graph.nodes);
  if (options.normalize)
    for (size_t r = 0; r < static_cast<size_t>(features.rows); ++r) {
      const int64_t begin = features.row_ptr[r], end = features.row_ptr[r + 1];
      const float scale =
          row_scale(begin, end, [&](int64_t i) { return features.value[static_cast<size_t>(i)]; });
      for (int64_t i = begin; i < end; ++i) features.value[static_cast<size_t>(i)] *= scale;
    }
  graph.features = features.cols;
  const CategoryScope category(Category::input);
  if (options.sparse) {
    graph.x = {};
    graph.x_row_ptr = to_tensor(features.row_ptr);
    graph.x_col = to_tensor(features.col);
    graph.x_value = to_tensor(features.value);
    return;
  }
  int64_t elements = 0;
  const bool overflow = __builtin_mul_overflow(features.rows, features.cols, &elements);
  const auto held = static_cast<int64_t>(features.value.size());
  FRUGAL_CHECK(!overflow && (elements <= kManyElements || elements / kSparsest <= held),
               "[graph] expected features of which more than one of {} is not 0, got {} of {} rows "
               "and {} columns; keep them as a sparse matrix (data.sparse_features)",
               kSparsest, held, features.rows, features.cols);
  graph.x_row_ptr = graph.x_col = graph.x_value = {};
  graph.x = Tensor::zeros({features.rows, features.cols});
  float* x = graph.x.mut<float>();
  for (int64_t r = 0; r < features.rows; ++r)
    for (int64_t i = features.row_ptr[static_cast<size_t>(r)];
         i < features.row_ptr[static_cast<size_t>(r) + 1]; ++i)
      x[r * features.cols + features.col[static_cast<size_t>(i)]] =
          features.value[static_cast<size_t>(i)];
}

void set_features(const std::string& where, GraphData& graph, const Tensor& features,
                  const GraphOptions& options) {
  FRUGAL_CHECK(
      features.dim() == 2 && features.size(0) == graph.nodes && features.dtype() == DType::f32,
      "[graph] expected features [{}, F] f32 in {}, got {}", graph.nodes, where,
      describe(features));
  const int64_t count = features.size(1);
  const float* in = features.data<float>();
  for (int64_t i = 0; i < features.numel(); ++i)
    FRUGAL_CHECK(std::isfinite(in[i]),
                 "[graph] expected finite features in {}, got {} at node {}, column {}", where,
                 in[i], i / count, i % count);
  if (options.sparse) {
    CsrMatrix csr{graph.nodes, count, {0}, {}, {}};
    for (int64_t r = 0; r < graph.nodes; ++r) {
      for (int64_t c = 0; c < count; ++c)
        if (in[r * count + c] != 0) {
          csr.col.push_back(c);
          csr.value.push_back(in[r * count + c]);
        }
      csr.row_ptr.push_back(static_cast<int64_t>(csr.col.size()));
    }
    set_features(graph, std::move(csr), options);
    return;
  }
  graph.features = count;
  graph.x = features;
  graph.x_row_ptr = graph.x_col = graph.x_value = {};
  if (!options.normalize) return;
  const CategoryScope category(Category::input);
  graph.x = Tensor::empty(features.shape());
  float* out = graph.x.mut<float>();
  for (int64_t r = 0; r < graph.nodes; ++r) {
    const float scale = row_scale(r * count, (r + 1) * count, [&](int64_t i) { return in[i]; });
    for (int64_t i = r * count; i < (r + 1) * count; ++i) out[i] = in[i] * scale;
  }
}

Tensor make_edge_index(int64_t nodes, const std::vector<int64_t>& from,
                       const std::vector<int64_t>& to, bool undirected, SelfLoops loops) {
  FRUGAL_ASSERT(from.size() == to.size());
  std::vector<int64_t> row_ptr(static_cast<size_t>(nodes) + 1);
  const auto each_edge = [&](const auto& visit) {
    for (size_t i = 0; i < from.size(); ++i) {
      if (loops == SelfLoops::drop && from[i] == to[i]) continue;
      visit(static_cast<size_t>(from[i]), to[i]);
      if (undirected) visit(static_cast<size_t>(to[i]), from[i]);
    }
  };
  each_edge([&](size_t a, int64_t) { ++row_ptr[a + 1]; });
  std::partial_sum(row_ptr.begin(), row_ptr.end(), row_ptr.begin());
  std::vector<int64_t> ends(static_cast<size_t>(row_ptr.back()));
  std::vector<int64_t> next(row_ptr.begin(), row_ptr.end() - 1);
  each_edge([&](size_t a, int64_t b) { ends[static_cast<size_t>(next[a]++)] = b; });
  int64_t kept = 0;
  for (size_t a = 0; a < static_cast<size_t>(nodes); ++a) {  // next[a]: the end of what is kept
    const auto begin = ends.begin() + row_ptr[a];
    std::sort(begin, ends.begin() + row_ptr[a + 1]);
    next[a] = std::unique(begin, ends.begin() + row_ptr[a + 1]) - ends.begin();
    kept += next[a] - row_ptr[a];
  }
  const CategoryScope category(Category::input);
  const Tensor edges = Tensor::empty({2, kept}, DType::i64);
  int64_t *out_from = edges.mut<int64_t>(), *out_to = out_from + kept;
  for (size_t a = 0; a < static_cast<size_t>(nodes); ++a)
    for (int64_t i = row_ptr[a]; i < next[a]; ++i) {
      *out_from++ = static_cast<int64_t>(a);
      *out_to++ = ends[static_cast<size_t>(i)];
    }
  return edges;
}

Tensor make_mask(const std::string& where, int64_t nodes, const std::vector<int64_t>& members) {
  const CategoryScope category(Category::input);
  const Tensor mask = Tensor::zeros({nodes}, DType::u8);
  uint8_t* out = mask.mut<uint8_t>();
  for (const int64_t node : members) {
    FRUGAL_CHECK(node >= 0 && node < nodes, "[graph] expected nodes in [0, {}) in {}, got {}",
                 nodes, where, node);
    FRUGAL_CHECK(out[node] == 0, "[graph] expected each node once in {}, got {} twice", where,
                 node);
    out[node] = 1;
  }
  return mask;
}

}  // namespace frugal::data
