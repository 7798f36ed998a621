// Embeddings on CUDA beside the CPU's, where the op table does not reach: ids that need several
// passes of the sort, runs of equal ids over many pieces, padding, ids out of range.
#include "ops/sequence/embedding.h"

#include "tests/cuda/compare.h"

namespace frugal::ops {
namespace {

using gpu::here, gpu::near, gpu::rounded, gpu::there, gpu::tolerance;

Tensor random_ids(int64_t n, int64_t vocabulary) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < n; ++i)
    ids.push_back(static_cast<int64_t>(
        uniform_int({5, 0}, static_cast<uint64_t>(i), static_cast<uint64_t>(vocabulary))));
  return Tensor::from<int64_t>(ids, {n});
}

}  // namespace

TEST_CASE("embedding on CUDA: rows, and sums of gradients by id") {
  if (!gpu::available()) return;
  struct Size {
    int64_t n, vocabulary, width;
  };
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Size& size : {Size{1, 1, 1}, Size{63, 7, 5}, Size{3000, 2, 8}, Size{5000, 300, 3},
                             Size{500, 70000, 4}, Size{130, 9, 2056}})
      for (const int64_t padding : {-1, 1}) {
        CAPTURE(size.n);
        const Tensor ids = random_ids(size.n, size.vocabulary);
        const Tensor weight = rounded({size.vocabulary, size.width}, 1);
        const Tensor dy = rounded({size.n, size.width}, 2);
        const Tensor y = embedding(there(ids), there(weight, dtype));
        CHECK(same_bits(cast(here(y), DType::f32), embedding(ids, weight)));
        const Tensor expected = embedding_backward(dy, ids, size.vocabulary, padding);
        const Tensor got =
            embedding_backward(there(dy, dtype), there(ids), size.vocabulary, padding);
        CHECK(near(got, expected, tolerance(dtype)));
        CHECK(same_bits(here(got), here(embedding_backward(there(dy, dtype), there(ids),
                                                           size.vocabulary, padding))));
      }
}

TEST_CASE("embedding on CUDA: sums take the rows in their order") {
  if (!gpu::available()) return;
  // 2^25 + 1 - 2^25 is 0 in f32, and 1 where the ones come last.
  const Tensor dy = Tensor::from<float>({33554432, 1, -33554432, 1, 1}, {5, 1});
  const Tensor ids = Tensor::from<int64_t>({4, 4, 4, 2, 4}, {5});
  const Tensor got = embedding_backward(there(dy), there(ids), 6);
  CHECK(got.to_vector() == std::vector<double>{0, 0, 1, 0, 1, 0});
}

TEST_CASE("embedding on CUDA: an id out of range gives NaN and has no gradient") {
  if (!gpu::available()) return;
  const Tensor ids = Tensor::from<int64_t>({0, 9, -1, 2}, {4});
  const Tensor y = embedding(there(ids), there(normals({3, 2}, 1)));
  CHECK(std::isnan(y.item(2)));
  CHECK(std::isnan(y.item(5)));
  CHECK_FALSE(std::isnan(y.item(6)));
  const Tensor dw = embedding_backward(there(Tensor::full({4, 2}, 1)), there(ids), 3);
  CHECK(dw.to_vector() == std::vector<double>{1, 1, 0, 0, 1, 1});
  CHECK(embedding_backward(there(Tensor::zeros({0, 2})), there(Tensor::zeros({0}, DType::i64)), 3)
            .to_vector() == std::vector<double>(6, 0.0));
}

}  // namespace frugal::ops
