#include "ops/graph/graph.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/checks.h"
#include "ops/dense/copy.h"

namespace frugal::ops {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

struct Entry {
  int64_t from, to;
  float weight;
};

Tensor host(const Shape& shape, DType dtype, Device device) {
  return Tensor::empty(shape, dtype, device);
}

void check_extents(const char* op, int64_t rows, int64_t cols, int64_t entries) {
  FRUGAL_CHECK(rows >= 0 && cols >= 0 && std::max({rows, cols, entries}) < kMost,
               "[{}] expected extents and entries in [0, 2^31), got {} by {} with {}", op, rows,
               cols, entries);
}

Csr empty_csr(int64_t rows, int64_t cols, int64_t entries, bool valued, Device device) {
  Csr csr{rows, cols, host({rows + 1}, DType::i64, device), host({entries}, DType::i32, device),
          valued ? host({entries}, DType::f32, device) : Tensor()};
  return csr;
}

// ptr[r + 1] holds the number of entries of row r; turns it into the first entry of row r + 1.
void accumulate_counts(int64_t* ptr, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) ptr[r + 1] += ptr[r];
}

// Fills by_col, and position if asked for, from by_row: a stable counting sort by column.
void transpose(SparseMatrix& m, bool positions) {
  const Csr& a = m.by_row;
  m.by_col = empty_csr(a.cols, a.rows, a.entries(), a.value.defined(), a.col.device());
  if (positions) m.position = host({a.entries()}, DType::i32, a.col.device());
  if (a.col.device().type == DeviceType::meta) return;
  const auto* ptr = a.row_ptr.data<int64_t>();
  const auto* col = a.col.data<int32_t>();
  auto* out = m.by_col.row_ptr.mut<int64_t>();
  std::fill_n(out, a.cols + 1, 0);
  for (int64_t e = 0; e < a.entries(); ++e) ++out[col[e] + 1];
  accumulate_counts(out, a.cols);
  std::vector<int64_t> next(out, out + a.cols);
  for (int64_t r = 0; r < a.rows; ++r)
    for (int64_t e = ptr[r]; e < ptr[r + 1]; ++e) {
      const int64_t at = next[static_cast<size_t>(col[e])]++;
      m.by_col.col.mut<int32_t>()[at] = static_cast<int32_t>(r);
      if (positions) m.position.mut<int32_t>()[at] = static_cast<int32_t>(e);
      if (a.value.defined()) m.by_col.value.mut<float>()[at] = a.value.data<float>()[e];
    }
  m.by_col.split = split_rows(m.by_col.row_ptr);
}

Tensor on_host_or_none(const Tensor& x) { return x.defined() ? to_device(contiguous(x), kCpu) : x; }

// Triples as a tensor [n, 3] i64 on `device`.
Tensor triples(const std::vector<int64_t>& values, Device device) {
  return to_device(Tensor::from(values, {static_cast<int64_t>(values.size()) / 3, 3}), device);
}

RowSplit split_for_warps(const Tensor& row_ptr, Device device) {
  RowSplit split;
  std::vector<int64_t> pieces, rows;
  const auto* ptr = row_ptr.data<int64_t>();
  for (int64_t r = 0; r + 1 < row_ptr.size(0); ++r) {
    const int64_t entries = ptr[r + 1] - ptr[r], from = split.pieces;
    split.longest = std::max(split.longest, entries);
    if (entries <= RowSplit::kWarpPiece) continue;
    for (int64_t e = ptr[r]; e < ptr[r + 1]; e += RowSplit::kWarpPiece, ++split.pieces)
      pieces.insert(pieces.end(), {r, e, std::min(e + RowSplit::kWarpPiece, ptr[r + 1])});
    rows.insert(rows.end(), {r, from, split.pieces - from});
  }
  split.warp_pieces = triples(pieces, device);
  split.warp_rows = triples(rows, device);
  return split;
}

Csr moved(const Csr& a, Device device) {
  const Device from = a.col.device();
  if (from == device) return a;
  Csr there{a.rows, a.cols, to_device(a.row_ptr, device), to_device(a.col, device),
            a.value.defined() ? to_device(a.value, device) : Tensor()};
  if (from.type == DeviceType::meta || device.type == DeviceType::meta) return there;
  const Tensor row_ptr = to_device(a.row_ptr, kCpu);
  there.split = device == kCpu ? split_rows(row_ptr) : split_for_warps(row_ptr, device);
  return there;
}

float weight_at(const Tensor& weight, int64_t e) {
  if (!weight.defined()) return 1;
  const float w = weight.dtype() == DType::f64 ? static_cast<float>(weight.data<double>()[e])
                                               : weight.data<float>()[e];
  FRUGAL_CHECK(std::isfinite(w), "[graph] expected finite edge weights, got {} at edge {}", w, e);
  return w;
}

std::vector<Entry> checked_edges(const Tensor& edge_index, int64_t nodes,
                                 const GraphOptions& options) {
  const Tensor index = contiguous(edge_index);
  const Tensor weight =
      options.edge_weight.defined() ? contiguous(options.edge_weight) : options.edge_weight;
  const int64_t count = index.size(1);
  const int64_t* from = index.data<int64_t>();
  const int64_t* to = from + count;
  std::vector<Entry> edges;
  edges.reserve(static_cast<size_t>(count + (options.self_loops ? nodes : 0)));
  std::vector<float> loops(options.self_loops ? static_cast<size_t>(nodes) : 0, 1.0F);
  for (int64_t e = 0; e < count; ++e) {
    FRUGAL_CHECK(from[e] >= 0 && from[e] < nodes && to[e] >= 0 && to[e] < nodes,
                 "[graph] expected edges between nodes 0 to {}, got {} -> {} at edge {}", nodes - 1,
                 from[e], to[e], e);
    const float w = weight_at(weight, e);
    if (options.self_loops && from[e] == to[e])
      loops[static_cast<size_t>(to[e])] = w;
    else
      edges.push_back({from[e], to[e], w});
  }
  for (int64_t v = 0; v < static_cast<int64_t>(loops.size()); ++v)
    edges.push_back({v, v, loops[static_cast<size_t>(v)]});
  return edges;
}

void normalize(Csr& a, EdgeNorm norm) {
  const auto* ptr = a.row_ptr.data<int64_t>();
  auto* value = a.value.mut<float>();
  std::vector<double> degree(static_cast<size_t>(a.rows), 0.0);
  for (int64_t r = 0; r < a.rows; ++r)
    for (int64_t e = ptr[r]; e < ptr[r + 1]; ++e)
      degree[static_cast<size_t>(r)] += static_cast<double>(value[e]);
  bool symmetric = false;  // else the mean
  switch (norm) {
    case EdgeNorm::none:
      return;
    case EdgeNorm::symmetric:
      symmetric = true;
      break;
    case EdgeNorm::mean:
      break;
  }
  std::vector<double> scale(degree.size(), 0.0);
  for (size_t r = 0; r < degree.size(); ++r)
    if (degree[r] > 0) scale[r] = symmetric ? 1 / std::sqrt(degree[r]) : 1 / degree[r];
  for (int64_t r = 0; r < a.rows; ++r)
    for (int64_t e = ptr[r]; e < ptr[r + 1]; ++e) {
      const double other = symmetric ? scale[static_cast<size_t>(a.col.data<int32_t>()[e])] : 1;
      value[e] =
          static_cast<float>(static_cast<double>(value[e]) * scale[static_cast<size_t>(r)] * other);
    }
}

}  // namespace

RowSplit split_rows(const Tensor& row_ptr) {
  RowSplit split;
  const int64_t rows = row_ptr.size(0) - 1;
  const auto* ptr = row_ptr.data<int64_t>();
  if (row_ptr.device().type == DeviceType::meta) return split;
  int64_t first = 0, work = 0;
  const auto close = [&](int64_t end) {
    if (end > first) split.tasks.push_back({first, end});
    first = end;
    work = 0;
  };
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t entries = ptr[r + 1] - ptr[r];
    split.longest = std::max(split.longest, entries);
    if (entries > RowSplit::kPiece) {
      close(r);
      const int64_t from = split.pieces;
      for (int64_t e = ptr[r]; e < ptr[r + 1]; e += RowSplit::kPiece)
        split.tasks.push_back(
            {r, r + 1, e, std::min(e + RowSplit::kPiece, ptr[r + 1]), split.pieces++});
      split.long_rows.push_back({r, from, split.pieces - from});
      first = r + 1;
      continue;
    }
    work += entries + 1;
    if (work >= RowSplit::kTask) close(r + 1);
  }
  close(rows);
  return split;
}

Graph make_graph(const Tensor& edge_index, int64_t nodes, const GraphOptions& options) {
  check_defined("graph", "edge_index", edge_index);
  FRUGAL_CHECK(edge_index.dim() == 2 && edge_index.size(0) == 2 && edge_index.dtype() == DType::i64,
               "[graph] expected edge_index [2, E] i64, got {}", describe(edge_index));
  const int64_t count = edge_index.size(1);
  check_extents("graph", nodes, nodes, count + nodes);
  if (options.edge_weight.defined()) {
    check_real("graph", "edge_weight", options.edge_weight);
    FRUGAL_CHECK(options.edge_weight.dtype() != DType::bf16,
                 "[graph] expected edge_weight of dtype f32, got {}",
                 describe(options.edge_weight));
    check_shape("graph", "edge_weight", options.edge_weight, {count});
  }
  CategoryScope scope(Category::input);
  Graph graph;
  graph.nodes = nodes;
  const bool valued = options.edge_weight.defined() || options.norm != EdgeNorm::none;
  const Device device = edge_index.device();
  Csr& in = graph.edges.by_row;
  if (device.type == DeviceType::meta) {
    in = empty_csr(nodes, nodes, count + (options.self_loops ? nodes : 0), valued, device);
    transpose(graph.edges, options.positions);
    return graph;
  }
  if (device != kCpu) {
    GraphOptions on_host = options;
    on_host.edge_weight = on_host_or_none(options.edge_weight);
    return to_device(make_graph(on_host_or_none(edge_index), nodes, on_host), device);
  }
  const std::vector<Entry> edges = checked_edges(edge_index, nodes, options);
  in = empty_csr(nodes, nodes, static_cast<int64_t>(edges.size()), valued, device);
  auto* ptr = in.row_ptr.mut<int64_t>();
  std::fill_n(ptr, nodes + 1, 0);
  for (const Entry& e : edges) ++ptr[e.to + 1];
  accumulate_counts(ptr, nodes);
  std::vector<int64_t> next(ptr, ptr + nodes);
  for (const Entry& e : edges) {
    const int64_t at = next[static_cast<size_t>(e.to)]++;
    in.col.mut<int32_t>()[at] = static_cast<int32_t>(e.from);
    if (valued) in.value.mut<float>()[at] = e.weight;
  }
  if (options.norm != EdgeNorm::none) normalize(in, options.norm);
  in.split = split_rows(in.row_ptr);
  transpose(graph.edges, options.positions);
  return graph;
}

SparseMatrix make_sparse(const Tensor& row_ptr, const Tensor& col, const Tensor& value,
                         int64_t cols) {
  check_dim("sparse", "row_ptr", row_ptr, 1);
  check_dim("sparse", "col", col, 1);
  FRUGAL_CHECK(row_ptr.dtype() == DType::i64 && row_ptr.size(0) >= 1,
               "[sparse] expected row_ptr [rows + 1] i64, got {}", describe(row_ptr));
  FRUGAL_CHECK(col.dtype() == DType::i64 || col.dtype() == DType::i32,
               "[sparse] expected col of dtype i64 or i32, got {}", describe(col));
  const int64_t rows = row_ptr.size(0) - 1, entries = col.size(0);
  check_extents("sparse", rows, cols, entries);
  if (value.defined()) {
    check_shape("sparse", "value", value, {entries});
    FRUGAL_CHECK(value.dtype() == DType::f32, "[sparse] expected value of dtype f32, got {}",
                 describe(value));
  }
  CategoryScope scope(Category::input);
  SparseMatrix m;
  m.by_row = empty_csr(rows, cols, entries, value.defined(), row_ptr.device());
  if (row_ptr.device().type == DeviceType::meta) {
    transpose(m, true);
    return m;
  }
  if (row_ptr.device() != kCpu)
    return to_device(
        make_sparse(on_host_or_none(row_ptr), on_host_or_none(col), on_host_or_none(value), cols),
        row_ptr.device());
  copy_into(m.by_row.row_ptr, row_ptr);
  const auto* ptr = m.by_row.row_ptr.data<int64_t>();
  FRUGAL_CHECK(ptr[0] == 0 && ptr[rows] == entries && std::is_sorted(ptr, ptr + rows + 1),
               "[sparse] expected row_ptr to rise from 0 to {} entries, got {} to {}", entries,
               ptr[0], ptr[rows]);
  for (int64_t e = 0; e < entries; ++e) {
    const auto c = col.dtype() == DType::i64
                       ? col.data<int64_t>()[e * col.strides()[0]]
                       : static_cast<int64_t>(col.data<int32_t>()[e * col.strides()[0]]);
    FRUGAL_CHECK(c >= 0 && c < cols, "[sparse] expected columns 0 to {}, got {} at entry {}",
                 cols - 1, c, e);
    m.by_row.col.mut<int32_t>()[e] = static_cast<int32_t>(c);
    if (!value.defined()) continue;
    const float v = value.data<float>()[e * value.strides()[0]];
    FRUGAL_CHECK(std::isfinite(v), "[sparse] expected finite values, got {} at entry {}", v, e);
    m.by_row.value.mut<float>()[e] = v;
  }
  m.by_row.split = split_rows(m.by_row.row_ptr);
  transpose(m, true);
  return m;
}

Csr group_by(const char* op, const Tensor& index, int64_t rows) {
  check_dim(op, "index", index, 1);
  FRUGAL_CHECK(index.dtype() == DType::i64, "[{}] expected index of dtype i64, got {}", op,
               describe(index));
  const int64_t entries = index.size(0);
  check_extents(op, rows, entries, entries);
  const bool counts_only = index.device().type == DeviceType::meta;
  Csr csr = empty_csr(rows, entries, entries, false, counts_only ? kMeta : kCpu);
  if (counts_only) return csr;
  const Tensor values = on_host_or_none(index);
  const auto* row = values.data<int64_t>();
  auto* ptr = csr.row_ptr.mut<int64_t>();
  std::fill_n(ptr, rows + 1, 0);
  for (int64_t e = 0; e < entries; ++e) {
    FRUGAL_CHECK(row[e] >= 0 && row[e] < rows, "[{}] expected indices 0 to {}, got {} at {}", op,
                 rows - 1, row[e], e);
    ++ptr[row[e] + 1];
  }
  accumulate_counts(ptr, rows);
  std::vector<int64_t> next(ptr, ptr + rows);
  for (int64_t e = 0; e < entries; ++e)
    csr.col.mut<int32_t>()[next[static_cast<size_t>(row[e])]++] = static_cast<int32_t>(e);
  csr.split = split_rows(csr.row_ptr);
  return moved(csr, index.device());
}

SparseMatrix to_device(const SparseMatrix& matrix, Device device) {
  CategoryScope scope(Category::input);
  return {moved(matrix.by_row, device), moved(matrix.by_col, device),
          matrix.position.defined() ? to_device(matrix.position, device) : Tensor()};
}

Graph to_device(const Graph& graph, Device device) {
  return {graph.nodes, to_device(graph.edges, device)};
}

}  // namespace frugal::ops
