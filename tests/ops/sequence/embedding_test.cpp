#include "ops/sequence/embedding.h"

#include <doctest/doctest.h>

#include "tests/ops/samples.h"

namespace frugal::ops {
namespace {

Tensor random_ids(int64_t n, int64_t vocabulary) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < n; ++i)
    ids.push_back(static_cast<int64_t>(
        uniform_int({5, 0}, static_cast<uint64_t>(i), static_cast<uint64_t>(vocabulary))));
  return Tensor::from<int64_t>(ids, {n});
}

}  // namespace

TEST_CASE("embedding: rows of the table, and sums of gradients by id") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor ids = random_ids(300, 17), weight = normals({17, 9}, 1, dtype);
    const Tensor y = embedding(ids.view({3, 100}), weight);
    REQUIRE(y.shape() == Shape{3, 100, 9});
    const Tensor dy = normals({300, 9}, 2, dtype);
    std::vector<double> sums(17 * 9, 0.0);
    for (int64_t i = 0; i < 300; ++i)
      for (int64_t k = 0; k < 9; ++k) {
        const auto id = static_cast<int64_t>(ids.item(i));
        REQUIRE(y.item(i * 9 + k) == weight.item(id * 9 + k));
        if (id != 4) sums[static_cast<size_t>(id * 9 + k)] += dy.item(i * 9 + k);
      }
    const Tensor dweight = embedding_backward(dy, ids, 17, 4);
    CHECK(error(dweight, sums) < (dtype == DType::f32 ? 1e-5 : 1e-14));
    for (int64_t k = 0; k < 9; ++k) CHECK(dweight.item(4 * 9 + k) == 0);
  }
}

TEST_CASE("embedding: a gradient of bf16 is summed in f32") {
  // A sum of ones in bf16 would stay at 256. findings/torch_bf16_sums.sh
  const Tensor ids = Tensor::zeros({1000}, DType::i64),
               dy = Tensor::full({1000, 8}, 1, DType::bf16);
  const Tensor dweight = embedding_backward(dy, ids, 4);
  CHECK(dweight.item(0) == 1000);
  const SparseRows rows = embedding_backward_rows(dy, ids, 4);
  CHECK(rows.rows.item(0) == 1000);
}

TEST_CASE("embedding: the number of threads does not matter") {
  const Tensor ids = random_ids(5000, 700), dy = normals({5000, 33}, 3),
               table = normals({700, 33}, 4);
  Tensor one, two;
  {
    const ThreadsScope threads(1);
    one = embedding_backward(dy, ids, 700);
  }
  const ThreadsScope threads(3);
  CHECK(same_bits(embedding_backward(dy, ids, 700), one));
  CHECK(same_bits(embedding(ids, with_gaps(table)), embedding(ids, table)));
}

TEST_CASE("embedding_backward_rows: the rows of the whole gradient that are not 0") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor ids = random_ids(30, 1000), dy = normals({30, 7}, 6, dtype);
    const int64_t padding = static_cast<int64_t>(ids.item(3));
    const SparseRows sparse = embedding_backward_rows(dy, ids, 1000, padding);
    CHECK(sparse.rows.size(0) < 30);
    for (int64_t i = 1; i < sparse.ids.numel(); ++i)
      CHECK(sparse.ids.item(i - 1) < sparse.ids.item(i));
    const Tensor table = Tensor::zeros({1000, 7}, dtype);
    add_rows(table, sparse);
    CHECK(same_bits(table, embedding_backward(dy, ids, 1000, padding)));
    const Tensor part = Tensor::zeros({400, 7}, dtype);
    add_rows(part, sparse, 300);
    CHECK(same_bits(part, contiguous(table.slice(0, 300, 700))));
  }
  CHECK_THROWS_WITH_AS(embedding_backward_rows(normals({4, 2}, 1), random_ids(4, 3), 1),
                       doctest::Contains("[embedding_backward] expected ids in [0, 1)"), Error);
  const SparseRows sparse = embedding_backward_rows(normals({4, 2}, 1), random_ids(4, 3), 9);
  CHECK_THROWS_WITH_AS(add_rows(Tensor::zeros({4, 2}), sparse, 6),
                       doctest::Contains("[add_rows] expected contiguous rows of a table [9, 2]"),
                       Error);
  CHECK_THROWS_WITH_AS(
      merge_rows(sparse, embedding_backward_rows(normals({4, 3}, 1), random_ids(4, 3), 9)),
      doctest::Contains("[merge_rows] expected two tables of one shape"), Error);
}

TEST_CASE("embedding: meta allocates and looks at no id") {
  const Tensor ids = Tensor::empty({2, 3}, DType::i64, kMeta);
  CHECK(embedding(ids, Tensor::empty({5, 4}, DType::f32, kMeta)).shape() == Shape{2, 3, 4});
  CHECK(embedding_backward(Tensor::empty({2, 3, 4}, DType::f32, kMeta), ids, 5).shape() ==
        Shape{5, 4});
  CHECK(
      embedding_backward_rows(Tensor::empty({2, 3, 4}, DType::f32, kMeta), ids, 500).rows.size(0) ==
      6);
}

TEST_CASE("embedding_backward: mistakes are refused") {
  const Tensor ids = random_ids(4, 3);
  CHECK_THROWS_WITH_AS(embedding_backward(normals({5, 2}, 1), ids, 3),
                       doctest::Contains("[embedding_backward] expected dy of shape [4, 2]"),
                       Error);
  CHECK_THROWS_WITH_AS(embedding_backward(normals({4, 2}, 1), ids, 1),
                       doctest::Contains("[embedding_backward] expected ids in [0, 1)"), Error);
  CHECK_THROWS_WITH_AS(embedding_backward(normals({4, 2}, 1), ids, -1),
                       doctest::Contains("expected a vocabulary of at least 0"), Error);
}

}  // namespace frugal::ops
