#include <doctest/doctest.h>

#include "../ops/samples.h"
#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/gradient.h"
#include "autograd/transformer_functions.h"
#include "core/memory.h"
#include "ops/sequence/embedding.h"

namespace frugal {
namespace {

using ops::normals;
using ops::same_bits;

constexpr int64_t kRows = 1000, kWidth = 64;

Tensor ids_at(std::vector<int64_t> ids) {
  const auto n = static_cast<int64_t>(ids.size());
  return Tensor::from<int64_t>(ids, {n});
}

// dy of an embedding, its place in the sum: any numbers.
Variable weighed(const Variable& y, uint64_t seed) {
  return sum(mul(y, Variable(normals(y.shape(), seed))));
}

Tensor whole_gradient(const Tensor& ids, uint64_t seed, int64_t padding = -1) {
  return ops::embedding_backward(normals({ids.numel(), kWidth}, seed), ids, kRows, padding);
}

}  // namespace

TEST_CASE("an embedding's gradient is the rows that were asked for") {
  const Tensor ids = ids_at({7, 3, 999, 7, 0, 7});
  const Variable table = Variable::parameter(normals({kRows, kWidth}, 8));
  const Variable loss = weighed(embedding(ids, table, 3), 2);
  allocator(kCpu).reset_peak();
  backward(loss);
  const int64_t table_bytes = kRows * kWidth * 4;
  CHECK(allocator(kCpu).report().peak[static_cast<size_t>(Category::gradient)] < table_bytes / 10);
  const ops::SparseRows& sparse = table.accumulator()->sparse();
  REQUIRE(sparse.defined());
  CHECK(sparse.ids.to_vector() == std::vector<double>{0, 7, 999});
  CHECK(table.accumulator()->values().shape() == Shape{3, kWidth});
  CHECK(table.has_grad());
  CHECK(same_bits(table.grad(), whole_gradient(ids, 2, 3)));
  CHECK(!table.accumulator()->sparse().defined());  // whole from now on
}

TEST_CASE("many ids give a whole gradient") {
  std::vector<int64_t> many(static_cast<size_t>(kRows), 5);
  const Variable table = Variable::parameter(normals({kRows, kWidth}, 8));
  backward(weighed(embedding(ids_at(many), table), 1));
  CHECK(!table.accumulator()->sparse().defined());
  CHECK(same_bits(table.grad(), whole_gradient(ids_at(many), 1)));
}

TEST_CASE("sparse rows add up with others and with whole gradients") {
  const Tensor a = ids_at({4, 2, 4}), b = ids_at({2, 900});
  auto term = [](const Tensor& ids, uint64_t seed) {
    return whole_gradient(ids, seed).to_vector();
  };
  const auto of_a = term(a, 1), of_b = term(b, 5);
  std::vector<double> both(of_a.size()), doubled(of_a.size());
  const Tensor all = normals({kRows, kWidth}, 3);
  for (size_t i = 0; i < both.size(); ++i) {
    both[i] = static_cast<float>(of_a[i] + of_b[i]);
    doubled[i] = static_cast<float>(of_a[i] + all.item(static_cast<int64_t>(i)));
  }
  SUBCASE("of two embeddings") {
    const Variable table = Variable::parameter(normals({kRows, kWidth}, 8));
    backward(weighed(embedding(a, table), 1));
    backward(weighed(embedding(b, table), 5));
    CHECK(table.accumulator()->sparse().ids.to_vector() == std::vector<double>{2, 4, 900});
    CHECK(table.grad().to_vector() == both);
  }
  SUBCASE("before a whole one, which stays whose it was") {
    const Variable table = Variable::parameter(normals({kRows, kWidth}, 8));
    backward(weighed(embedding(a, table), 1));
    backward(sum(mul(table, Variable(all))));
    CHECK(table.grad().to_vector() == doubled);
    CHECK(same_bits(all, normals({kRows, kWidth}, 3)));
  }
  SUBCASE("after a whole one") {
    const Variable table = Variable::parameter(normals({kRows, kWidth}, 8));
    backward(sum(mul(table, Variable(all))));
    backward(weighed(embedding(a, table), 1));
    CHECK(table.grad().to_vector() == doubled);
  }
}

TEST_CASE("a sparse gradient survives where there is no memory for the whole of it") {
  const Tensor ids = ids_at({7, 3, 7});
  const Variable table = Variable::parameter(normals({kRows, kWidth}, 8));
  backward(weighed(embedding(ids, table), 2));
  allocator(kCpu).fail_after(1);
  CHECK_THROWS_AS(table.grad(), OutOfMemory);
  allocator(kCpu).fail_after(-1);
  CHECK(table.has_grad());
  CHECK(table.accumulator()->sparse().defined());
  CHECK(same_bits(table.grad(), whole_gradient(ids, 2)));
}

TEST_CASE("a gradient that is set or dropped replaces sparse rows") {
  Variable table = Variable::parameter(normals({kRows, kWidth}, 8));
  backward(weighed(embedding(ids_at({1}), table), 1));
  table.zero_grad();
  CHECK(!table.has_grad());
  CHECK(!table.grad().defined());
  backward(weighed(embedding(ids_at({1}), table), 1));
  table.set_grad(normals({kRows, kWidth}, 9));
  CHECK(same_bits(table.grad(), normals({kRows, kWidth}, 9)));
}

TEST_CASE("a table that an op made gets a whole gradient") {
  const Tensor ids = ids_at({7, 3});
  const Variable leaf(normals({kRows, kWidth}, 8), true);
  backward(weighed(embedding(ids, scale(leaf, 2)), 4));
  const auto once = whole_gradient(ids, 4).to_vector();
  const auto found = leaf.grad().to_vector();
  for (size_t i = 0; i < once.size(); ++i) REQUIRE(found[i] == 2 * once[i]);
}

}  // namespace frugal
