// Recipes of recipes, and masks that codes carry.
#include <doctest/doctest.h>

#include <cmath>

#include "autograd/checkpoint.h"
#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/record.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"

using namespace frugal;

namespace {

constexpr int64_t kElements = 64, kBytes = 4 * kElements;

int64_t live(Category category) { return allocator(kCpu).report().of(category); }

// Keeps copies; carries signs if told to.
class SignCodec : public Codec {
 public:
  explicit SignCodec(bool carries) : carries_(carries) {}
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override {
    struct Copy : Packed {
      Tensor kept, mask;
      Tensor unpack() const override { return ops::clone(kept); }
      Tensor unpack_sign() const override { return ops::clone(mask); }
      bool carries_sign() const override { return mask.defined(); }
    };
    ++packs;
    slopes.push_back(info.sign != nullptr ? info.sign->slope : -1);
    auto packed = std::make_unique<Copy>();
    CategoryScope scope(Category::packed);
    packed->kept = ops::clone(tensor);
    if (carries_ && info.sign != nullptr) {
      // As if the bits lay in the codes: not counted.
      CategoryScope uncounted(Category::optimizer);
      packed->mask = ops::clone(info.sign->mask);
    }
    return packed;
  }
  mutable int packs = 0;
  mutable std::vector<double> slopes;

 private:
  bool carries_;
};

class RecipePolicy : public SavePolicy {
 public:
  RecipePolicy(const Codec* codec, bool recipes) : codec_(codec), recipes_(recipes) {}
  Decision decide(const SaveInfo& info, const Tensor&) override {
    asked.push_back(info);
    if (recipes_ && info.rebuilt != Rebuilt::none) return {Decision::rebuild, codec_};
    if (codec_ == nullptr || recipes_) return {};
    return {Decision::pack, codec_, carry};
  }
  std::vector<SaveInfo> asked;
  bool carry = true;

 private:
  const Codec* codec_;
  bool recipes_;
};

// x + r, cheap to rebuild: keeps x, and r where that is free.
Variable block(const Variable& x, const Variable& r, int& rebuilds) {
  const Tensor y = r.defined() ? ops::add(x.value(), r.value()) : ops::clone(x.value());
  return record(
      "block", {x, r}, y, {save(x), r.defined() ? for_recipe(r) : Save{}},
      [](const Backward& b) {
        b.saved(0);
        return Grads{b.dy(), b.dy()};
      },
      linear_recipe([&rebuilds](const Slots& s) {
        ++rebuilds;
        const Tensor residual = s.unpack(1), value = s.unpack(0);
        return residual.defined() ? ops::add(value, residual) : ops::clone(value);
      }));
}

// y y, which needs y; notes what is packed and what it was given when its backward has it.
struct ReaderNotes {
  std::vector<int64_t> packed;
  std::vector<double> first;
};
Variable reader(const Variable& y, ReaderNotes& seen) {
  return record("reader", {y}, ops::mul(y.value(), y.value()), {save(y)}, [&](const Backward& b) {
    const Tensor value = b.saved(0);
    seen.packed.push_back(live(Category::packed));
    seen.first.push_back(static_cast<double>(value.data<float>()[0]));
    return Grads{ops::affine(ops::mul(b.dy(), value), 2, 0)};
  });
}

Variable input(double value) { return Variable(Tensor::full({8, 8}, value), true); }

}  // namespace

TEST_CASE("a chain is rebuilt once, waits packed, and goes with its last consumer") {
  constexpr int kLength = 5;
  for (bool packs : {true, false}) {
    CAPTURE(packs);
    const SignCodec codec(false);
    RecipePolicy policy(packs ? &codec : nullptr, true);
    int rebuilds = 0;
    ReaderNotes seen;
    const int64_t before = live(Category::packed);
    {
      PolicyScope scope(&policy);
      Variables xs;
      Variable y, total;
      for (int i = 0; i < kLength; ++i) {
        xs.push_back(input(i + 1));
        y = block(xs.back(), y, rebuilds);
        const Variable z = reader(y, seen);
        total = total.defined() ? add(total, z) : z;
      }
      y = {};
      CHECK(rebuilds == 0);
      backward(sum(total));
      // d/dx_i of the sum of squares of partial sums s_j, j >= i: the sum of 2 s_j.
      double expected = 0, partial = kLength * (kLength + 1) / 2.0;
      for (int i = kLength; i > 0; --i) {
        expected += 2 * partial;
        partial -= i;
        CHECK(static_cast<double>(xs[static_cast<size_t>(i - 1)].grad().data<float>()[0]) ==
              expected);
      }
    }
    CHECK(rebuilds == kLength);
    CHECK(seen.first == std::vector<double>{15, 10, 6, 3, 1});
    if (packs) {
      CHECK(codec.packs == kLength - 1);
      // The last reader's own tensor never waits; each one leaves with its reader, which still
      // holds it here.
      std::vector<int64_t> waiting;
      for (const int64_t n : {4, 4, 3, 2, 1}) waiting.push_back(before + n * kBytes);
      CHECK(seen.packed == waiting);
    }
    CHECK(live(Category::packed) == before);
    std::vector<int64_t> on_the_way;
    for (const SaveInfo& info : policy.asked)
      if (std::string(info.op) == "reader") on_the_way.push_back(info.recipe_elements);
    CHECK(on_the_way ==
          std::vector<int64_t>{0, kElements, 2 * kElements, 3 * kElements, 4 * kElements});
  }
}

TEST_CASE("a tensor with two consumers is rebuilt once") {
  const SignCodec codec(false);
  RecipePolicy policy(&codec, true);
  PolicyScope scope(&policy);
  int rebuilds = 0;
  ReaderNotes seen;
  const Variable y = block(input(3), {}, rebuilds);
  backward(sum(add(reader(y, seen), reader(y, seen))));
  CHECK(rebuilds == 1);
  CHECK(seen.first == std::vector<double>{3, 3});
}

TEST_CASE("a chain that the policy cuts starts again at what was kept") {
  class Cut : public RecipePolicy {
   public:
    using RecipePolicy::RecipePolicy;
    Decision decide(const SaveInfo& info, const Tensor& value) override {
      const Decision decision = RecipePolicy::decide(info, value);
      return info.recipe_elements > kElements ? Decision{} : decision;
    }
  };
  Cut policy(nullptr, true);
  PolicyScope scope(&policy);
  int rebuilds = 0;
  ReaderNotes seen;
  Variable y;
  Variables readers;  // what they saved is shared while they live
  for (int i = 0; i < 7; ++i) {
    y = block(input(1), y, rebuilds);
    readers.push_back(reader(y, seen));
  }
  std::vector<int64_t> on_the_way;
  for (const SaveInfo& info : policy.asked)
    if (std::string(info.op) == "reader") on_the_way.push_back(info.recipe_elements / kElements);
  CHECK(on_the_way == std::vector<int64_t>{0, 1, 2, 0, 1, 2, 0});
}

TEST_CASE("recipes do not nest without bound") {
  RecipePolicy policy(nullptr, false);
  PolicyScope scope(&policy);
  Variable y = gelu(input(0.5));
  for (int i = 0; i < 200000; ++i) y = add_scalar(y, 0);
  y = {};  // freeing recurses no deeper than recipes nest
  ReaderNotes seen;
  y = gelu(input(0.5));
  int depth = 0;
  for (; depth < 1000; ++depth) {
    reader(y, seen);
    if (policy.asked.back().rebuilt == Rebuilt::none) break;
    y = add_scalar(y, 0);
  }
  CHECK(depth == 64);
}

TEST_CASE("a mask that codes carry is not saved anywhere else") {
  for (bool carries : {false, true}) {
    CAPTURE(carries);
    const SignCodec codec(carries);
    RecipePolicy policy(&codec, false);
    PolicyScope scope(&policy);
    const Variable x(Tensor::from<float>({1, -2, 3, -4, 5, -6, 7, -8}, {8, 1}), true);
    const int64_t before = live(Category::activation);
    const Variable y = batch_norm_relu(scale(x, 1), {}, {}, {});
    // mean and invstd, and the mask, each in its own 64 bytes; y itself
    CHECK(live(Category::activation) - before == (carries ? 192 : 256));
    CHECK(codec.slopes == std::vector<double>{0});
    backward(sum(mul(y, y)));
    const Tensor packed = x.grad();
    Variable(x).zero_grad();
    PolicyScope raw(nullptr);
    const Variable z = batch_norm_relu(scale(x, 1), {}, {}, {});
    backward(sum(mul(z, z)));
    CHECK(packed.to_vector() == x.grad().to_vector());
  }
}

TEST_CASE("a relu's mask moves into the codes of its output when a consumer packs that") {
  const SignCodec codec(true);
  RecipePolicy policy(&codec, false);
  for (bool carry : {false, true}) {
    codec.slopes.clear();
    policy.carry = carry;
    PolicyScope scope(&policy);
    const Variable x(Tensor::from<float>({1, -2, 3, -4, 5, -6, 7, -8}, {8, 1}), true);
    Variable y = relu(x);
    const int64_t with_mask = live(Category::activation);
    const Variable z = mul(y, y);
    CHECK(live(Category::activation) - with_mask == (carry ? 0 : 64));  // z for the mask
    CHECK(codec.slopes == std::vector<double>{carry ? 1.0 : -1.0});
    backward(sum(z));
    CHECK(x.grad().to_vector() == std::vector<double>{2, 0, 6, 0, 10, 0, 14, 0});
  }
}

TEST_CASE("masks stay if somebody else needs the whole tensor") {
  const auto gradient = [](SavePolicy* policy) {
    PolicyScope scope(policy);
    const Variable x(Tensor::from<float>({1, -2, 3, -4, 5, -6, 7, -8}, {8, 1}), true);
    const Variable c = scale(x, 1);
    const Variable y = batch_norm_relu(c, {}, {}, {});
    // Lossless, of the same bytes: the entry becomes raw, the mask is still what the codes carry.
    const Variable kept = record("index", {c}, ops::clone(c.value()), {save_exact(c.value())},
                                 [](const Backward& b) { return Grads{b.saved(0)}; });
    // Gradients that differ from row to row: a norm takes away what all rows have.
    const Tensor weights = Tensor::from<float>({1, 2, 4, 8, 16, 32, 64, 128}, {8, 1});
    backward(sum(add(mul(y, Variable::constant(weights)), kept)));
    return x.grad().to_vector();
  };
  const SignCodec codec(true);
  RecipePolicy policy(&codec, false);
  const std::vector<double> expected = gradient(nullptr), found = gradient(&policy);
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) CHECK(found[i] == doctest::Approx(expected[i]));
  // Rows whose sign the mask has as negative get nothing through relu, so the mask is at work.
  CHECK(!codec.slopes.empty());
}

TEST_CASE("checkpoints and gradient accumulation over chains change no bit") {
  auto gradients = [](SavePolicy* policy, bool checkpointed) {
    const Variable x = input(0.7), w = input(-0.3);
    for (int micro = 0; micro < 2; ++micro) {
      PolicyScope scope(policy);
      auto body = [&w](const Variables& in) {
        const Variable a = relu(batch_norm(mul(in[0], w), {}, {}, {}));
        return batch_norm_add_relu(mul(a, a), a, {}, {}, {});
      };
      Variable y = checkpointed ? checkpoint(body, {x}) : body({x});
      y = checkpointed ? checkpoint(body, {y}) : body({y});
      backward(sum(mul(y, y)));
    }
    auto all = x.grad().to_vector();
    const auto of_w = w.grad().to_vector();
    all.insert(all.end(), of_w.begin(), of_w.end());
    return all;
  };
  const SignCodec carrying(true);
  RecipePolicy recipes(nullptr, true), codes(&carrying, false);
  const auto expected = gradients(nullptr, false);
  for (SavePolicy* policy : {static_cast<SavePolicy*>(&recipes), static_cast<SavePolicy*>(&codes)})
    for (bool checkpointed : {false, true}) CHECK(gradients(policy, checkpointed) == expected);
}

TEST_CASE("a rebuilt tensor waits raw for consumers that run next, packed for others") {
  const auto packs = [](int between) {
    const SignCodec codec(false);
    RecipePolicy policy(&codec, true);
    PolicyScope scope(&policy);
    begin_step(0);
    int rebuilds = 0;
    const Variable x(Tensor::full({8, 8}, 0.5), true);
    const Variable w = Variable::parameter(Tensor::full({8, 8}, 2));
    const Variable y = block(x, {}, rebuilds);
    Variable last = linear(y, w, {});
    for (int i = 0; i < between; ++i) last = scale(last, 0.5);
    backward(sum(add(last, add(linear(y, w, {}), linear(y, w, {})))));
    CHECK(rebuilds == 1);
    CHECK(x.grad().item() == doctest::Approx(16 * (2 + std::pow(0.5, between))));
    return codec.packs;
  };
  CHECK(packs(0) == 0);
  CHECK(packs(6) == 1);
}
