// What attention keeps: nothing of its output where backward computes it again anyway.
#include <doctest/doctest.h>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/record.h"
#include "autograd/transformer_functions.h"
#include "compress/policies/fixed_policy.h"
#include "compress/quantize/quantize.h"
#include "ops/dense/copy.h"
#include "tests/integration/noise.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

constexpr int64_t kSequences = 2, kLength = 64, kAttentionHeads = 4, kHeadSize = 16;
const Shape kHeadsShape{kSequences, kLength, kAttentionHeads, kHeadSize};

FixedPolicyOptions width_of(int bits) {
  FixedPolicyOptions options;
  options.bits = bits;
  options.min_elements = 0;
  return options;
}

int64_t kept_bytes() {
  const auto report = allocator(kCpu).report();
  return report.of(Category::activation) + report.of(Category::packed);
}

struct AttentionLeaves {
  std::vector<Variable> all;
  AttentionLeaves() {
    for (uint64_t i = 0; i < 3; ++i) {
      Variable leaf(noise(kHeadsShape, 60 + i));
      leaf.set_requires_grad(true);
      all.push_back(leaf);
    }
  }
  // Copies that are activations: a leaf costs nothing.
  Variables activations() const {
    Variables copies;
    for (const Variable& leaf : all) copies.push_back(add(leaf, Variable(Tensor::full({}, 0))));
    return copies;
  }
  std::vector<std::vector<double>> gradients() {
    std::vector<std::vector<double>> found;
    for (Variable& leaf : all) {
      found.push_back(leaf.grad().to_vector());
      leaf.zero_grad();
    }
    return found;
  }
};

// Notes the number of each tensor that ops save.
class NumberNotes final : public SavePolicy {
 public:
  explicit NumberNotes(int bits) : policy_(width_of(bits)) {}
  Decision decide(const SaveInfo& info, const Tensor& value) override {
    notes.push_back(fmt::format("{} {}", info.op, info.seq));
    return policy_.decide(info, value);
  }
  std::vector<std::string> notes;

 private:
  FixedPolicy policy_;
};

// Keeps x without loss, as an op does that must not read rounded values.
Variable kept_whole(const Variable& x) {
  return record("kept_whole", {x}, ops::clone(x.value()), {save_exact(x.value())},
                [](const Backward& b) { return Grads{b.dy()}; });
}

}  // namespace

TEST_CASE("attention keeps neither its output nor its sums beside codes of q, k and v") {
  const int64_t sums = kSequences * kAttentionHeads * kLength * 4;
  const auto layer = [&](SavePolicy* policy) {
    const AttentionLeaves leaves;
    PolicyScope scope(policy);
    begin_step(0);
    const int64_t before = kept_bytes();
    Variables x = leaves.activations();
    const Variable y = scaled_dot_product_attention(x[0], x[1], x[2]);
    x.clear();
    return kept_bytes() - before - y.value().nbytes();
  };
  FixedPolicy raw(width_of(0)), four(width_of(4));
  CHECK(layer(&raw) == 3 * kHeadsShape.numel() * 4 + sums);
  const Quantizer codec(QuantizeOptions{.bits = 4});
  CHECK(layer(&four) == 3 * codec.packed_bytes({kSequences, kLength, kAttentionHeads * kHeadSize}));
}

TEST_CASE("attention's output takes its number also where attention does not keep it") {
  const auto notes = [](int bits) {
    const AttentionLeaves leaves;
    NumberNotes policy(bits);
    PolicyScope scope(&policy);
    begin_step(0);
    const Variables x = leaves.activations();
    const Variable y = scaled_dot_product_attention(x[0], x[1], x[2]);
    // A product with a trained weight saves y, and the next function another tensor.
    const Variable weight = Variable::parameter(noise({kHeadSize, kHeadSize}, 70));
    tanh(linear(y, weight));
    return policy.notes;
  };
  CHECK(notes(0) == std::vector<std::string>{"attention 0", "attention 1", "attention 2",
                                             "attention 3", "tanh 4"});
  CHECK(notes(4) == std::vector<std::string>{"attention 0", "attention 1", "attention 2",
                                             "linear 3", "tanh 4"});
}

TEST_CASE("attention's inputs that are kept whole after all give the exact gradient") {
  AttentionLeaves leaves;
  const auto gradients = [&](SavePolicy* policy) {
    PolicyScope scope(policy);
    begin_step(0);
    const Variables x = leaves.activations();
    const Variable y = scaled_dot_product_attention(x[0], x[1], x[2]);
    Variable loss = sum(mul(y, Variable::constant(noise(kHeadsShape, 71))));
    for (const Variable& each : x) loss = add(loss, sum(kept_whole(each)));
    backward(loss);
    return leaves.gradients();
  };
  FixedPolicy four(width_of(4));
  CHECK(gradients(&four) == gradients(nullptr));
}
