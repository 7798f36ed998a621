// A step whose packed tensors are coded by their entropy.
#include "compress/policies/entropy_policy.h"

#include <doctest/doctest.h>

#include <cmath>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "compress/policies/fixed_policy.h"

namespace frugal::compress {
namespace {

// Mostly near 0: codes of few values are much more frequent than others.
Tensor peaked(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    const double wave = std::sin(1.7 * static_cast<double>(i + 1));
    values[i] = static_cast<float>(std::pow(wave, 9));
  }
  return Tensor::from(values, shape);
}

struct Result {
  std::vector<float> gradient;
  int64_t packed = 0;
};

Result step(SavePolicy& policy) {
  const Variable weight = Variable::parameter(peaked({8, 16}));
  begin_step(3);
  Variable y;
  {
    PolicyScope scope(&policy);
    y = linear(
        silu(linear(Variable(peaked({4096, 16})), Variable::parameter(peaked({16, 16})), {})),
        weight, {});
  }
  Result result;
  result.packed = allocator(kCpu).report().of(Category::packed);
  backward(y, Tensor::full(y.shape(), 1));
  const Tensor g = weight.grad();
  result.gradient.assign(g.data<float>(), g.data<float>() + g.numel());
  return result;
}

}  // namespace

TEST_CASE("entropy coding takes fewer bytes and changes no gradient") {
  FixedPolicyOptions options;
  options.min_elements = 1024;
  options.recipes = false;
  FixedPolicy plain(options);
  EntropyPolicy coded(std::make_shared<FixedPolicy>(options));
  const Result expected = step(plain), result = step(coded);
  CHECK(result.gradient == expected.gradient);
  CHECK(expected.packed > 0);
  CHECK(static_cast<double>(result.packed) < 0.95 * static_cast<double>(expected.packed));
}

TEST_CASE("a wrapping policy needs one to wrap") {
  CHECK_THROWS_WITH_AS(EntropyPolicy(nullptr), "[compression] expected a policy to wrap, got none",
                       Error);
}

}  // namespace frugal::compress
