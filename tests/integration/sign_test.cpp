// Signs in codes, through whole recipes: every bit exact, every rebuilt tensor unbiased.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/node.h"
#include "compress/policies/fixed_policy.h"
#include "compress/quantize/quantize.h"
#include "core/rng.h"
#include "ops/dense/copy.h"
#include "tests/integration/bias.h"

using namespace frugal;

namespace {

constexpr int64_t kRows = 128, kChannels = 16;

Variable input(uint64_t stream) {
  Tensor x = Tensor::empty({kRows, kChannels});
  for (int64_t i = 0; i < x.numel(); ++i) {
    const int64_t c = i % kChannels;
    // The last channels: constant, all far above, all far below.
    const double spread = c == kChannels - 3 ? 0 : 1, shift = c == kChannels - 2 ? 50 : 0;
    x.mut<float>()[i] = static_cast<float>(
        shift + spread * static_cast<double>(normal({21, stream}, static_cast<uint64_t>(i))));
  }
  return Variable(x, true);
}

// Negative, zero and tiny scales among them.
Variable weight() {
  Tensor w = Tensor::full({kChannels}, 1);
  const float special[] = {-1.5f, 0.0f, 1e-30f, -1e-30f, 1e-3f, 2.0f};
  std::copy(std::begin(special), std::end(special), w.mut<float>());
  return Variable::parameter(w);
}
Variable bias(double all) {
  Tensor b = Tensor::full({kChannels}, all);
  b.mut<float>()[6] = 10;   // everything active
  b.mut<float>()[7] = -10;  // nothing is
  return Variable::parameter(b);
}

// Gives y through; its backward notes what y was rebuilt as.
Variable read(const Variable& y, Tensor& seen) {
  return record("read", {y}, ops::clone(y.value()), {save(y)}, [&seen](const Backward& b) {
    seen = b.saved(0);
    return Grads{b.dy()};
  });
}

struct Recipe {
  const char* name;
  std::function<Variable(const Variable& x, const Variable& z)> run;
};

std::vector<Recipe> recipes() {
  BatchNormStats none;
  return {
      {"batch_norm", [=](const Variable& x,
                         const Variable&) { return batch_norm(x, weight(), bias(0.1), none); }},
      {"batch_norm_relu",
       [=](const Variable& x, const Variable&) {
         return batch_norm_relu(x, weight(), bias(-0.2), none);
       }},
      {"batch_norm, relu",
       [=](const Variable& x, const Variable&) {
         return relu(batch_norm(x, weight(), bias(0.1), none));
       }},
      {"batch_norm, leaky_relu",
       [=](const Variable& x, const Variable&) {
         return leaky_relu(batch_norm(x, weight(), bias(0.1), none), 0.1);
       }},
      {"batch_norm_add_relu of a recipe",
       [=](const Variable& x, const Variable& z) {
         return batch_norm_add_relu(x, batch_norm(z, {}, {}, none), weight(), bias(0.1), none);
       }},
      {"scale, add_scalar, neg, dropout",
       [=](const Variable& x, const Variable&) {
         const Variable y = neg(add_scalar(scale(batch_norm_relu(x, {}, {}, none), 2), 1));
         return dropout(y, 0.3, {5, 6});
       }},
      {"add and sub of recipes",
       [=](const Variable& x, const Variable& z) {
         const Variable a = batch_norm_relu(x, {}, {}, none), b = batch_norm(z, {}, {}, none);
         return sub(add(a, b), scale(b, 3));
       }},
      {"a chain of three blocks",
       [=](const Variable& x, const Variable& z) {
         Variable y = batch_norm_relu(x, {}, {}, none);
         for (int i = 0; i < 3; ++i)
           y = batch_norm_add_relu(scale(z, i - 1.5), y, {}, bias(-0.3), none);
         return y;
       }},
  };
}

compress::FixedPolicyOptions keep_options(int bits, uint64_t seed) {
  compress::FixedPolicyOptions o;
  o.bits = bits;
  o.min_elements = 0;
  o.seed = seed;
  return o;
}

// What backward sees of the recipe's output.
Tensor rebuilt(const Recipe& recipe, SavePolicy* policy) {
  PolicyScope scope(policy);
  begin_step(0);
  Tensor seen;
  // Not leaves: a leaf's bytes are alive anyway.
  const Variable y = read(recipe.run(scale(input(1), 1), scale(input(2), 1)), seen);
  backward(y, Tensor::full(y.shape(), 1));
  return seen;
}

}  // namespace

TEST_CASE("every recipe's mean over seeds is the exact tensor") {
  constexpr int kDraws = 200;
  for (const Recipe& recipe : recipes())
    for (int bits : {2, 4}) {
      INFO(std::string(recipe.name));
      CAPTURE(bits);
      const Tensor exact = rebuilt(recipe, nullptr);
      Bias bias(exact.to_vector());
      for (uint64_t seed = 0; seed < kDraws; ++seed) {
        compress::FixedPolicy policy(keep_options(bits, seed));
        bias.add(rebuilt(recipe, &policy).to_vector());
      }
      // About 2000 elements: their average chi-square has a standard deviation of about 0.03.
      CHECK(bias.chi_square() < 1.2);
    }
}

TEST_CASE("the sign in the codes is the forward pass's, bit for bit, and the mask is not kept") {
  for (bool residual : {false, true})
    for (int bits : {2, 3, 4, 8}) {
      CAPTURE(residual);
      CAPTURE(bits);
      auto run = [&](SavePolicy* policy, int64_t& kept) {
        PolicyScope scope(policy);
        begin_step(0);
        const Variable x = scale(input(3), 1), z = input(4);
        const MemoryReport before = allocator(kCpu).report();
        const Variable y = residual ? batch_norm_add_relu(x, z, weight(), bias(0.1), {})
                                    : batch_norm_relu(x, weight(), bias(0.1), {});
        const MemoryReport after = allocator(kCpu).report();
        kept = after.of(Category::packed) - before.of(Category::packed);
        const Node& node = *y.producer();
        return node.slots.unpack(node.sign_slot).to_vector();
      };
      int64_t none = 0, with_codes = 0, with_masks = 0;
      compress::FixedPolicyOptions o = keep_options(bits, 9);
      compress::FixedPolicy codes(o);
      o.signs = compress::Signs::masks;
      compress::FixedPolicy masks(o);
      const std::vector<double> exact = run(nullptr, none);
      CHECK(run(&codes, with_codes) == exact);
      CHECK(run(&masks, with_masks) == exact);
      CHECK(with_codes == codes.codec().packed_bytes({kRows, kChannels}, true));
      CHECK(with_masks == masks.codec().packed_bytes({kRows, kChannels}, false));
    }
}

TEST_CASE("another op that saves a norm's input never gets codes that draw rows") {
  for (int bits : {2, 4}) {
    CAPTURE(bits);
    int64_t more = 0;  // bytes that the other op's save took
    auto run = [&](SavePolicy* policy) {
      PolicyScope scope(policy);
      begin_step(0);
      Tensor seen;
      const Variable source = input(3), x = mul(source, source.detach());  // has no recipe
      const Variable y = batch_norm_relu(x, weight(), bias(0.1), {});
      const int64_t before = allocator(kCpu).report().of(Category::packed);
      const Variable z = read(x, seen);
      more = allocator(kCpu).report().of(Category::packed) - before;
      backward(z, Tensor::full(z.shape(), 1));
      return seen.to_vector();
    };
    Bias bias(run(nullptr));
    for (uint64_t seed = 0; seed < 200; ++seed) {
      compress::FixedPolicy policy(keep_options(bits, seed));
      bias.add(run(&policy));
      REQUIRE(more == 0);  // what draws rows is packed anew, and serves both
    }
    CHECK(bias.chi_square() < 1.2);
  }
}

// Errors of x where relu is 0 all count alike in the sum over rows that is a layer's gradient.
TEST_CASE("a layer in front of a norm and relu has unbiased gradients at 2, 3 and 4 bits") {
  constexpr int64_t kMany = 1024, kInputs = 12;
  const Tensor x = Tensor::empty({kMany, kInputs}), z = Tensor::empty({kMany, kChannels});
  for (const Tensor* each : {&x, &z})
    for (int64_t i = 0; i < each->numel(); ++i)
      each->mut<float>()[i] = normal({22, 1}, static_cast<uint64_t>(i));
  Tensor w = Tensor::empty({kChannels, kInputs});
  for (int64_t i = 0; i < w.numel(); ++i)
    w.mut<float>()[i] = normal({22, 2}, static_cast<uint64_t>(i));
  BatchNormStats none;
  const std::function<Variable(const Variable&)> norms[] = {
      [&](const Variable& y) { return batch_norm_relu(y, weight(), bias(0.1), none); },
      [&](const Variable& y) { return relu(batch_norm(y, weight(), bias(-0.3), none)); },
      [&](const Variable& y) {
        return batch_norm_add_relu(y, Variable(z), weight(), bias(0.1), none);
      }};
  for (const auto& norm : norms)
    for (const int bits : {2, 3, 4}) {
      CAPTURE(bits);
      const auto gradient = [&](SavePolicy* policy) {
        PolicyScope scope(policy);
        begin_step(0);
        const Variable layer = Variable::parameter(w);
        const Variable y = norm(linear(Variable(x), layer, {}));
        backward(y, Tensor::full(y.shape(), 1));
        return layer.grad().to_vector();
      };
      Bias bias(gradient(nullptr));
      for (uint64_t seed = 0; seed < 300; ++seed) {
        compress::FixedPolicy policy(keep_options(bits, seed));
        bias.add(gradient(&policy));
      }
      CHECK(bias.chi_square() < 1.5);
    }
}

TEST_CASE("a relu's output carries the relu's mask, and its zeros return as zeros") {
  for (int bits : {2, 4}) {
    CAPTURE(bits);
    auto run = [&](SavePolicy* policy) {
      PolicyScope scope(policy);
      begin_step(0);
      Tensor seen;
      const Variable x = input(5);
      // The sum has no recipe: relu's output is packed when its reader saves it.
      const Variable y = relu(mul(x, x.detach()));
      const Variable z = relu(add(mul(x, Variable(Tensor::full({kChannels}, -1))), y));
      const Variable out = read(z, seen);
      const Node& node = *z.producer();
      const bool is_raw = node.slots[node.sign_slot].is_raw();
      CHECK(is_raw == (policy == nullptr));
      backward(out, Tensor::full(out.shape(), 1));
      return std::pair(seen.to_vector(), x.grad().to_vector());
    };
    const auto exact = run(nullptr);
    compress::FixedPolicyOptions o = keep_options(bits, 1);
    o.recipes = false;
    compress::FixedPolicy policy(o);
    const auto lossy = run(&policy);
    size_t zeros = 0;
    for (size_t i = 0; i < exact.first.size(); ++i)
      if (exact.first[i] == 0) {
        ++zeros;
        REQUIRE(lossy.first[i] == 0);
      }
    CHECK(zeros > 100);
  }
}
