// What graph networks keep under real codecs: where nothing is lost, gradients are equal to the
// bit.
#include <doctest/doctest.h>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/graph_functions.h"
#include "autograd/record.h"
#include "compress/policies/fixed_policy.h"
#include "core/memory.h"
#include "core/rng.h"
#include "tests/integration/noise.h"

using namespace frugal;

namespace {

constexpr int64_t kNodes = 300;

Tensor draws(const Shape& shape, uint64_t stream, int64_t below) {
  const CategoryScope scope(Category::input);
  const Tensor x = Tensor::empty(shape, DType::i64);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mut<int64_t>()[i] = static_cast<int64_t>(
        uniform_int({12, stream}, static_cast<uint64_t>(i), static_cast<uint64_t>(below)));
  return x;
}

GraphPtr graph() {
  static const GraphPtr made = std::make_shared<ops::Graph>(
      ops::make_graph(draws({2, 4 * kNodes}, 1, kNodes), kNodes, {true, ops::EdgeNorm::none, {}}));
  return made;
}

// What a step of `f` gives, whose inputs are leaves: all gradients, and what is packed when
// backward begins.
struct Step {
  std::vector<std::vector<double>> gradients;
  int64_t packed = 0;
};
template <class F>
Step step(F f, const Variables& leaves, SavePolicy* policy) {
  Variables own = leaves;
  for (Variable& leaf : own) leaf.zero_grad();
  const int64_t before = allocator(kCpu).report().of(Category::packed);
  PolicyScope scope(policy);
  begin_step(0);
  const Variable y = f();
  Step result;
  result.packed = allocator(kCpu).report().of(Category::packed) - before;
  backward(y, noise(y.shape(), 9));
  for (const Variable& leaf : own) result.gradients.push_back(leaf.grad().to_vector());
  return result;
}

compress::FixedPolicy two_bits() {
  compress::FixedPolicyOptions options;
  options.bits = 2;
  options.min_elements = 0;
  return compress::FixedPolicy(options);
}

}  // namespace

TEST_CASE("attention keeps narrow features whole, wide ones packed") {
  for (const int64_t heads : {1, 4}) {
    const Variable x = Variable::parameter(noise({kNodes, heads, 7}, 2));
    const Variable source = Variable::parameter(noise({1, heads, 7}, 3)),
                   target = Variable::parameter(noise({1, heads, 7}, 4));
    const auto attend = [&] {
      const Variable h = reshape(spmm(graph(), reshape(x, {kNodes, -1})), x.shape());
      return graph_attention(graph(), h, head_scores(h, source), head_scores(h, target));
    };
    const Variables leaves{x, source, target};
    compress::FixedPolicy policy = two_bits();
    const Step exact = step(attend, leaves, nullptr), kept = step(attend, leaves, &policy);
    const bool narrow = heads == 1;
    CHECK((kept.packed == 0) == narrow);
    CHECK((kept.gradients == exact.gradients) == narrow);
  }
}

TEST_CASE(
    "a product with few sparse entries is made again and costs nothing, with many it is kept") {
  for (const int64_t entries : {20, 80}) {
    const Tensor row_ptr = Tensor::empty({kNodes + 1}, DType::i64);
    for (int64_t r = 0; r <= kNodes; ++r) row_ptr.mut<int64_t>()[r] = r * entries;
    const auto x = std::make_shared<ops::SparseMatrix>(
        ops::make_sparse(row_ptr, draws({kNodes * entries}, 5, 100), {}, 100));
    const Variable weight = Variable::parameter(noise({32, 100}, 6)),
                   bias = Variable::parameter(noise({32}, 7));
    const Variable scores = Variable::parameter(noise({kNodes, 4}, 8));
    const auto attend = [&] {
      const Variable h = sparse_linear(x, weight, bias, 0.5, {1, 2});
      return graph_attention(graph(), reshape(h, {kNodes, 4, 8}), scores, scores);
    };
    const Variables leaves{weight, bias, scores};
    compress::FixedPolicy policy = two_bits();
    const Step exact = step(attend, leaves, nullptr), kept = step(attend, leaves, &policy);
    const bool few = entries == 20;
    CHECK((kept.packed == 0) == few);
    CHECK((kept.gradients == exact.gradients) == few);
  }
}
