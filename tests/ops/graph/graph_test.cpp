#include "ops/graph/graph.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "tests/ops/samples.h"

using namespace frugal;
using namespace frugal::ops;

namespace {

using List = std::vector<double>;

Tensor edges(const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
  std::vector<int64_t> both = from;
  both.insert(both.end(), to.begin(), to.end());
  return Tensor::from(both, {2, static_cast<int64_t>(from.size())});
}

// 0 -> 1, 2 -> 1, 1 -> 1, 1 -> 0; node 3 alone.
const std::vector<int64_t> kFrom = {0, 2, 1, 1}, kTo = {1, 1, 1, 0};

bool near(const Tensor& x, const List& expected) { return error(x, expected) < 1e-6; }

}  // namespace

TEST_CASE("rows are targets, in the order of the edge list, and the transpose knows where from") {
  const Graph g = make_graph(edges(kFrom, kTo), 4);
  CHECK(g.nodes == 4);
  CHECK(g.edges.by_row.row_ptr.to_vector() == List{0, 1, 4, 4, 4});
  CHECK(g.edges.by_row.col.to_vector() == List{1, 0, 2, 1});
  CHECK_FALSE(g.edges.by_row.value.defined());
  CHECK(g.edges.by_col.row_ptr.to_vector() == List{0, 1, 3, 4, 4});
  CHECK(g.edges.by_col.col.to_vector() == List{1, 0, 1, 1});
  CHECK(g.edges.position.to_vector() == List{1, 0, 3, 2});
  CHECK(g.edges.by_row.col.storage()->category() == Category::input);
  CHECK(g.edges.by_row.split.longest == 3);
}

TEST_CASE("self-loops are added once, last in their row, with the weight of the last there was") {
  GraphOptions options;
  options.self_loops = true;
  Graph g = make_graph(edges(kFrom, kTo), 4, options);
  CHECK(g.edges.by_row.row_ptr.to_vector() == List{0, 2, 5, 6, 7});
  CHECK(g.edges.by_row.col.to_vector() == List{1, 0, 0, 2, 1, 2, 3});
  options.edge_weight = Tensor::from<float>({2, 3, 5, 7, 11}, {5});
  g = make_graph(edges({0, 2, 1, 1, 1}, {1, 1, 1, 0, 1}), 4, options);
  CHECK(g.edges.by_row.col.to_vector() == List{1, 0, 0, 2, 1, 2, 3});
  CHECK(g.edges.by_row.value.to_vector() == List{7, 1, 2, 3, 11, 1, 1});
}

TEST_CASE("the symmetric norm is w / sqrt(d d), the mean w / d, of weights into a node") {
  GraphOptions options;
  options.self_loops = true;
  options.norm = EdgeNorm::symmetric;
  // Degrees with loops: 2, 3, 1, 1.
  Graph g = make_graph(edges(kFrom, kTo), 4, options);
  const double s6 = 1 / std::sqrt(6.0), s3 = 1 / std::sqrt(3.0);
  CHECK(near(g.edges.by_row.value, {s6, 0.5, s6, s3, 1 / 3.0, 1, 1}));
  // By source: 0 -> {0, 1}, 1 -> {0, 1}, 2 -> {1, 2}, 3 -> {3}.
  CHECK(near(g.edges.by_col.value, {0.5, s6, s6, 1 / 3.0, s3, 1, 1}));

  options = {};
  options.norm = EdgeNorm::mean;
  options.edge_weight = Tensor::from<double>({1, 2, 3, 4}, {4});
  g = make_graph(edges(kFrom, kTo), 4, options);
  CHECK(near(g.edges.by_row.value, {1, 1 / 6.0, 2 / 6.0, 3 / 6.0}));
  // A degree of 0 or less has no norm.
  options.edge_weight = Tensor::from<double>({1, -2, 0.5, 4}, {4});
  g = make_graph(edges(kFrom, kTo), 4, options);
  CHECK(near(g.edges.by_row.value, {1, 0, 0, 0}));
}

TEST_CASE("empty graphs and graphs of no nodes") {
  const Tensor none = Tensor::zeros({2, 0}, DType::i64);
  Graph g = make_graph(none, 3);
  CHECK(g.edges.by_row.row_ptr.to_vector() == List{0, 0, 0, 0});
  CHECK(g.edges.by_row.entries() == 0);
  g = make_graph(none, 0);
  CHECK(g.edges.by_col.row_ptr.to_vector() == List{0});
  GraphOptions loops;
  loops.self_loops = true;
  CHECK(make_graph(none, 3, loops).edges.by_row.col.to_vector() == List{0, 1, 2});
}

TEST_CASE("tasks cover every row once, and long rows in pieces") {
  constexpr int64_t kPiece = RowSplit::kPiece;
  std::vector<int64_t> ptr = {0};
  for (const int64_t entries :
       std::initializer_list<int64_t>{3, 0, 5 * kPiece / 2, kPiece, kPiece + 1, 0, 400, 400, 400})
    ptr.push_back(ptr.back() + entries);
  const RowSplit split = split_rows(Tensor::from(ptr, {static_cast<int64_t>(ptr.size())}));
  std::vector<int> seen(static_cast<size_t>(ptr.back()), 0), rows(ptr.size() - 1, 0);
  int64_t piece = 0;
  for (const auto& task : split.tasks) {
    if (task.piece < 0) {
      for (int64_t r = task.row; r < task.end; ++r) {
        ++rows[static_cast<size_t>(r)];
        for (int64_t e = ptr[static_cast<size_t>(r)]; e < ptr[static_cast<size_t>(r) + 1]; ++e)
          ++seen[static_cast<size_t>(e)];
      }
    } else {
      CHECK(task.piece == piece++);
      CHECK(task.stop - task.begin <= kPiece);
      for (int64_t e = task.begin; e < task.stop; ++e) ++seen[static_cast<size_t>(e)];
    }
  }
  for (const auto& row : split.long_rows) ++rows[static_cast<size_t>(row.row)];
  CHECK(std::count(seen.begin(), seen.end(), 1) == ptr.back());
  CHECK(std::count(rows.begin(), rows.end(), 1) == 9);
  REQUIRE(split.long_rows.size() == 2);
  CHECK(split.long_rows[0].pieces == 3);
  CHECK(split.long_rows[1].first == 3);
  CHECK(split.pieces == 5);
  CHECK(split.longest == 5 * kPiece / 2);
}

TEST_CASE("csr matrices keep their entries, strided columns too") {
  const Tensor ptr = Tensor::from<int64_t>({0, 2, 2, 3}, {4});
  const Tensor col = Tensor::from<int64_t>({3, 1, 3}, {3});
  const SparseMatrix m = make_sparse(ptr, with_gaps(col), {}, 4);
  CHECK(m.rows() == 3);
  CHECK(m.cols() == 4);
  CHECK(m.by_row.col.to_vector() == List{3, 1, 3});
  CHECK(m.by_col.row_ptr.to_vector() == List{0, 0, 1, 1, 3});
  CHECK(m.by_col.col.to_vector() == List{0, 0, 2});
  CHECK(m.position.to_vector() == List{1, 0, 2});
}

TEST_CASE("on meta there are shapes and bytes") {
  GraphOptions options;
  options.self_loops = true;
  options.norm = EdgeNorm::symmetric;
  const int64_t before = allocator(kMeta).report().of(Category::input);
  const Tensor index = Tensor::empty({2, 100}, DType::i64, kMeta);
  const Graph g = make_graph(index, 10, options);
  CHECK(g.edges.by_row.entries() == 110);
  CHECK(g.edges.by_col.value.shape() == Shape{110});
  CHECK(allocator(kMeta).report().of(Category::input) - before >= 2 * 11 * 8 + 5 * 110 * 4);
}

TEST_CASE("what is no graph is refused, naming the edge") {
  const auto refused = [](const std::string& message, const std::function<void()>& f) {
    CAPTURE(message);
    CHECK_THROWS_WITH_AS(f(), doctest::Contains(message.c_str()), Error);
  };
  refused("[graph] expected edges between nodes 0 to 3, got 1 -> 4 at edge 2", [] {
    make_graph(edges({0, 1, 1}, {1, 0, 4}), 4);
  });
  refused("got -1 -> 0 at edge 0", [] { make_graph(edges({-1}, {0}), 4); });
  refused("[graph] expected edge_index [2, E] i64", [] { make_graph(Tensor::zeros({2, 3}), 4); });
  refused("[graph] expected edge_index [2, E] i64", [] {
    make_graph(Tensor::zeros({3, 2}, DType::i64), 4);
  });
  refused("[graph] expected edge_index to be a tensor", [] { make_graph({}, 4); });
  refused("[graph] expected extents and entries in [0, 2^31)", [] {
    make_graph(Tensor::zeros({2, 1}, DType::i64), int64_t{1} << 31);
  });
  refused("[graph] expected extents and entries", [] {
    make_graph(Tensor::zeros({2, 1}, DType::i64), -1);
  });
  GraphOptions options;
  options.edge_weight = Tensor::from<float>({1, static_cast<float>(kNan)}, {2});
  refused("[graph] expected finite edge weights, got nan at edge 1", [&] {
    make_graph(edges({0, 1}, {1, 0}), 2, options);
  });
  options.edge_weight = Tensor::zeros({3});
  refused("[graph] expected edge_weight of shape [2]", [&] {
    make_graph(edges({0, 1}, {1, 0}), 2, options);
  });
  options.edge_weight = Tensor::zeros({2}, DType::i64);
  refused("[graph] expected edge_weight of dtype f32, f64 or bf16", [&] {
    make_graph(edges({0, 1}, {1, 0}), 2, options);
  });

  const Tensor ptr = Tensor::from<int64_t>({0, 2, 3}, {3});
  const Tensor col = Tensor::from<int64_t>({0, 1, 1}, {3});
  refused("[sparse] expected columns 0 to 0, got 1 at entry 1",
          [&] { make_sparse(ptr, col, {}, 1); });
  refused("[sparse] expected row_ptr to rise from 0 to 2 entries",
          [&] { make_sparse(ptr, col.slice(0, 0, 2), {}, 2); });
  refused("[sparse] expected row_ptr to rise", [&] {
    make_sparse(Tensor::from<int64_t>({0, 4, 3}, {3}), col, {}, 2);
  });
  refused("[sparse] expected row_ptr [rows + 1] i64",
          [&] { make_sparse(Tensor::zeros({3}), col, {}, 2); });
  refused("[sparse] expected col of dtype i64 or i32",
          [&] { make_sparse(ptr, Tensor::zeros({3}), {}, 2); });
  refused("[sparse] expected value of dtype f32",
          [&] { make_sparse(ptr, col, Tensor::zeros({3}, DType::f64), 2); });
  refused("[sparse] expected finite values, got inf at entry 2", [&] {
    make_sparse(ptr, col, Tensor::from<float>({1, 2, static_cast<float>(kInf)}, {3}), 2);
  });
}
