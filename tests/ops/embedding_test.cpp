#include "ops/embedding.h"

#include <doctest/doctest.h>

#include "samples.h"

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

TEST_CASE("embedding: meta allocates and looks at no id") {
  const Tensor ids = Tensor::empty({2, 3}, DType::i64, kMeta);
  CHECK(embedding(ids, Tensor::empty({5, 4}, DType::f32, kMeta)).shape() == Shape{2, 3, 4});
  CHECK(embedding_backward(Tensor::empty({2, 3, 4}, DType::f32, kMeta), ids, 5).shape() ==
        Shape{5, 4});
}

TEST_CASE("embedding_backward: what it refuses") {
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
