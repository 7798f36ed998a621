#include "ops/graph/spmm.h"

#include <doctest/doctest.h>

#include "core/memory.h"
#include "ops/dense/copy.h"
#include "tests/error_bounds.h"
#include "tests/ops/samples.h"

using namespace frugal;
using namespace frugal::ops;

namespace {

// Random entries, of which `hub` go to row 3 and come from column 2.
SparseMatrix matrix_of(int64_t rows, int64_t cols, int64_t entries, int64_t hub, bool valued) {
  const Tensor index = Tensor::empty({entries}, DType::i64);
  std::vector<std::vector<int64_t>> lists(static_cast<size_t>(rows));
  for (int64_t e = 0; e < entries; ++e) {
    const auto at = static_cast<uint64_t>(2 * e);
    int64_t row = static_cast<int64_t>(uniform_int({1, 1}, at, static_cast<uint64_t>(rows)));
    int64_t col = static_cast<int64_t>(uniform_int({1, 1}, at + 1, static_cast<uint64_t>(cols)));
    if (e < hub) (e % 2 == 0 ? row : col) = e % 2 == 0 ? 3 : 2;
    lists[static_cast<size_t>(row)].push_back(col);
  }
  std::vector<int64_t> ptr = {0}, col;
  for (const auto& list : lists) {
    col.insert(col.end(), list.begin(), list.end());
    ptr.push_back(static_cast<int64_t>(col.size()));
  }
  return make_sparse(Tensor::from(ptr, {rows + 1}), Tensor::from(col, {entries}),
                     valued ? normals({entries}, 7) : Tensor(), cols);
}

// Sums in f64, term by term.
std::vector<double> dense_product(const Csr& a, const Tensor& x, bool absolute = false) {
  const int64_t width = x.size(1);
  const std::vector<double> v = x.to_vector();
  std::vector<double> y(static_cast<size_t>(a.rows * width), 0.0);
  for (int64_t r = 0; r < a.rows; ++r)
    for (int64_t e = a.row_ptr.data<int64_t>()[r]; e < a.row_ptr.data<int64_t>()[r + 1]; ++e) {
      const double w = a.value.defined() ? static_cast<double>(a.value.data<float>()[e]) : 1;
      const int64_t c = a.col.data<int32_t>()[e];
      for (int64_t f = 0; f < width; ++f) {
        const double term = w * v[static_cast<size_t>(c * width + f)];
        y[static_cast<size_t>(r * width + f)] += absolute ? std::abs(term) : term;
      }
    }
  return y;
}

// The largest error relative to the sum of the terms' sizes.
double relative_error(const Csr& a, const Tensor& x) {
  const std::vector<double> got = spmm(a, x).to_vector(), exact = dense_product(a, x),
                            size = dense_product(a, x, true);
  double worst = 0;
  for (size_t i = 0; i < exact.size(); ++i)
    worst = std::max(worst, std::abs(got[i] - exact[i]) / (1 + size[i]));
  return worst;
}

}  // namespace

TEST_CASE("a hand-worked product") {
  // [1 0 2; 0 0 0] x [[1 10], [2 20], [3 30]]
  const SparseMatrix a =
      make_sparse(Tensor::from<int64_t>({0, 2, 2}, {3}), Tensor::from<int64_t>({0, 2}, {2}),
                  Tensor::from<float>({1, 2}, {2}), 3);
  const Tensor x = Tensor::from<float>({1, 10, 2, 20, 3, 30}, {3, 2});
  CHECK(spmm(a.by_row, x).to_vector() == std::vector<double>{7, 70, 0, 0});
  SpmmOptions o;
  o.mean = true;
  o.factor = 4;
  o.bias = Tensor::from<float>({100, 200}, {2});
  o.addend = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  o.addend_factor = -1;
  CHECK(spmm(a.by_row, x, o).to_vector() == std::vector<double>{113, 338, 97, 196});
  // The transpose: [1 0; 0 0; 2 0].
  const Tensor y = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  CHECK(spmm(a.by_col, y).to_vector() == std::vector<double>{1, 2, 0, 0, 2, 4});
  SpmmOptions transposed;
  transposed.entry_counts = a.by_row.row_ptr;
  CHECK(spmm(a.by_col, y, transposed).to_vector() == std::vector<double>{0.5, 1, 0, 0, 1, 2});
}

TEST_CASE("every width and dtype, with rows of thousands of entries") {
  for (const bool valued : {false, true})
    for (const int64_t width : {1, 3, 4, 7, 16, 33, 64, 100, 256, 277}) {
      CAPTURE(width);
      const SparseMatrix a = matrix_of(50, 41, 12000, 10000, valued);
      REQUIRE(a.by_row.split.long_rows.size() == 1);
      REQUIRE(a.by_col.split.long_rows.size() == 1);
      const Tensor x = normals({41, width}, 5), dy = normals({50, width}, 6);
      const double bound = frugal_test::sum_bound(10000);  // entries of the longest row
      CHECK(relative_error(a.by_row, x) < bound);
      CHECK(relative_error(a.by_col, dy) < bound);
      CHECK(error(spmm(a.by_row, cast(x, DType::f64)), dense_product(a.by_row, x)) < 1e-12);
      CHECK(same_bits(spmm(a.by_row, with_gaps(x)), spmm(a.by_row, x)));
    }
}

TEST_CASE("results have the same bits for every number of threads") {
  const SparseMatrix a = matrix_of(400, 300, 60000, 20000, true);
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = normals({300, 40}, 5, dtype), dy = normals({400, 40}, 6, dtype);
    const auto all = [&] {
      const RowMax most = spmm_max(a.by_row, x);
      return std::vector<Tensor>{spmm(a.by_row, x), spmm(a.by_col, dy), most.y, most.index,
                                 spmm_max_backward(a, dy, most.index)};
    };
    std::vector<Tensor> one;
    {
      ThreadsScope threads(1);
      one = all();
    }
    for (const int n : {2, 3, 7}) {
      ThreadsScope threads(n);
      const std::vector<Tensor> many = all();
      for (size_t i = 0; i < one.size(); ++i) CHECK(same_bits(one[i], many[i]));
    }
  }
}

TEST_CASE("the maximum is the first of its row, NaN above all, 0 without entries") {
  const SparseMatrix a = make_sparse(Tensor::from<int64_t>({0, 3, 3, 5}, {4}),
                                     Tensor::from<int64_t>({0, 1, 2, 2, 0}, {5}), {}, 3);
  const Tensor x = Tensor::from<double>({1, -5, 4, -5, 4, kNan}, {3, 2});
  const RowMax out = spmm_max(a.by_row, x);
  CHECK(error(out.y, {4, kNan, 0, 0, 4, kNan}) == 0);
  CHECK(out.index.dtype() == DType::u8);
  CHECK(out.index.to_vector() == std::vector<double>{1, 2, 0, 0, 0, 0});
  const Tensor dy = Tensor::from<double>({1, 2, 3, 4, 5, 6}, {3, 2});
  CHECK(spmm_max_backward(a, dy, out.index).to_vector() == std::vector<double>{0, 0, 1, 0, 5, 8});
}

TEST_CASE("the maximum over thousands of entries, in pieces") {
  const SparseMatrix a = matrix_of(50, 41, 12000, 10000, false);
  const Tensor x = normals({41, 9}, 5);
  const RowMax out = spmm_max(a.by_row, x);
  CHECK(out.index.dtype() == DType::i32);
  const auto* ptr = a.by_row.row_ptr.data<int64_t>();
  const auto* col = a.by_row.col.data<int32_t>();
  for (int64_t r = 0; r < 50; ++r)
    for (int64_t f = 0; f < 9; ++f) {
      float most = -1e30F;
      int64_t first = 0;
      for (int64_t e = ptr[r]; e < ptr[r + 1]; ++e) {
        const float v = x.data<float>()[col[e] * 9 + f];
        if (v > most) most = v, first = e - ptr[r];
      }
      REQUIRE(out.y.data<float>()[r * 9 + f] == most);
      REQUIRE(out.index.data<int32_t>()[r * 9 + f] == first);
    }
}

TEST_CASE("NaN and infinity stay in the rows that they reach") {
  const SparseMatrix a = make_sparse(Tensor::from<int64_t>({0, 2, 3}, {3}),
                                     Tensor::from<int64_t>({0, 1, 1}, {3}), {}, 2);
  const Tensor x = Tensor::from<float>({static_cast<float>(kNan), 1, 2, 3}, {2, 2});
  CHECK(error(spmm(a.by_row, x), {kNan, 4, 2, 3}) == 0);
}

TEST_CASE("a sparse linear layer is the dense one, with dropout of the entries") {
  const SparseMatrix x = matrix_of(20, 11, 60, 0, true);
  const Tensor weight = normals({5, 11}, 3), bias = normals({5}, 4), dy = normals({20, 5}, 9);
  const Tensor value = dropout_entries(x.by_row, 0.5, {3, 1});
  int64_t kept = 0;
  for (int64_t e = 0; e < 60; ++e) {
    const float v = value.data<float>()[e];
    kept += v != 0;
    CHECK((v == 0 || v == 2 * x.by_row.value.data<float>()[e]));
    CHECK((v != 0) == (uniform({3, 1}, static_cast<uint64_t>(e)) >= 0.5F));
  }
  CHECK(kept > 15);
  CHECK(kept < 45);
  for (const Tensor& values : {Tensor(), value}) {
    std::vector<double> dense(20 * 11, 0.0), y(20 * 5), dw(5 * 11, 0.0);
    for (int64_t r = 0; r < 20; ++r)
      for (int64_t e = x.by_row.row_ptr.data<int64_t>()[r];
           e < x.by_row.row_ptr.data<int64_t>()[r + 1]; ++e)
        dense[static_cast<size_t>(r * 11 + x.by_row.col.data<int32_t>()[e])] +=
            (values.defined() ? values : x.by_row.value).item(e);
    for (int64_t r = 0; r < 20; ++r)
      for (int64_t o = 0; o < 5; ++o) {
        y[static_cast<size_t>(r * 5 + o)] = bias.item(o);
        for (int64_t f = 0; f < 11; ++f) {
          y[static_cast<size_t>(r * 5 + o)] +=
              dense[static_cast<size_t>(r * 11 + f)] * weight.item(o * 11 + f);
          dw[static_cast<size_t>(o * 11 + f)] +=
              dense[static_cast<size_t>(r * 11 + f)] * dy.item(r * 5 + o);
        }
      }
    CHECK(error(sparse_linear(x, weight, bias, values), y) < 1e-5);
    CHECK(error(sparse_linear_backward_weight(x, dy, values), dw) < 1e-5);
  }
}

TEST_CASE("extents and places that do not fit are refused") {
  const SparseMatrix a = matrix_of(5, 4, 6, 0, false);
  CHECK_THROWS_WITH_AS(spmm(a.by_row, normals({5, 2}, 1)), doctest::Contains("[spmm] expected x"),
                       Error);
  CHECK_THROWS_WITH_AS(spmm(a.by_row, Tensor::zeros({4, 2}, DType::i64)),
                       doctest::Contains("[spmm] expected x of dtype f32, f64 or bf16"), Error);
  SpmmOptions o;
  o.bias = Tensor::zeros({2}, DType::f64);
  CHECK_THROWS_WITH_AS(spmm(a.by_row, normals({4, 2}, 1), o),
                       doctest::Contains("[spmm] expected tensors of dtype f32 on cpu"), Error);
  o = {};
  o.addend = Tensor::zeros({5, 2}, DType::f64);
  CHECK_THROWS_WITH_AS(spmm(a.by_row, normals({4, 2}, 1), o),
                       doctest::Contains("[spmm] expected tensors of one dtype and device"), Error);
  o = {};
  o.value = Tensor::zeros({7});
  CHECK_THROWS_WITH_AS(spmm(a.by_row, normals({4, 2}, 1), o),
                       doctest::Contains("[spmm] expected value of shape [6]"), Error);
  const Graph meta = make_graph(Tensor::empty({2, 3}, DType::i64, kMeta), 4);
  CHECK_THROWS_WITH_AS(spmm(meta.edges.by_row, normals({4, 2}, 1)),
                       doctest::Contains("[spmm] expected the matrix on cpu, got one on meta"),
                       Error);
  CHECK_THROWS_WITH_AS(spmm_max_backward(a, normals({4, 2}, 1), Tensor::zeros({4, 2}, DType::u8)),
                       doctest::Contains("[spmm_max backward] expected dy [5, F]"), Error);
  CHECK(spmm(meta.edges.by_row, Tensor::empty({4, 2}, DType::f32, kMeta)).shape() == Shape{4, 2});
}

TEST_CASE("a product that is written over its input has the same bits") {
  const SparseMatrix a = matrix_of(200, 200, 3000, 900, true);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
    for (const int64_t width : {1, 5, 64, 100, 300}) {
      CAPTURE(width);
      const Tensor x = normals({200, width}, 1, dtype);
      SpmmOptions o;
      o.mean = true;
      o.factor = 1.5;
      o.bias = normals({width}, 2, dtype == DType::f64 ? dtype : DType::f32);
      o.addend = normals({200, width}, 3, dtype);
      o.addend_factor = -0.5;
      SpmmOptions transposed;
      transposed.entry_counts = a.by_row.row_ptr;
      for (const auto& [matrix, options] : {std::pair(&a.by_row, o), {&a.by_col, transposed}}) {
        const Tensor over = clone(x);
        const uint64_t version = over.storage()->version();
        spmm_over(*matrix, over, options);
        CHECK(same_bits(over, spmm(*matrix, x, options)));
        CHECK(over.storage()->version() > version);
      }
    }
  // Beside x there is a strip of columns, and the sums of the pieces of long rows.
  const Tensor x = normals({200, 256}, 4);
  allocator(kCpu).reset_peak();
  const int64_t before = allocator(kCpu).report().live_total;
  spmm_over(a.by_row, x);
  CHECK(allocator(kCpu).report().peak_total - before <=
        (200 + a.by_row.split.pieces) * 64 * int64_t{sizeof(float)});
  CHECK_THROWS_WITH_AS(spmm_over(matrix_of(5, 4, 9, 0, false).by_row, normals({4, 3}, 1)),
                       doctest::Contains("[spmm] expected a square matrix"), Error);
}

TEST_CASE("a graph of which only sums are taken has no positions") {
  const Tensor edges = Tensor::from<int64_t>({0, 1, 2, 1, 2, 0}, {2, 3});
  const Graph with = make_graph(edges, 3), without = make_graph(edges, 3, {.positions = false});
  CHECK(with.edges.position.defined());
  CHECK_FALSE(without.edges.position.defined());
  const Tensor x = normals({3, 4}, 1);
  CHECK(same_bits(spmm(with.edges.by_col, x), spmm(without.edges.by_col, x)));
  CHECK_FALSE(to_device(without, kMeta).edges.position.defined());
}
