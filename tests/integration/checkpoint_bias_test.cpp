// Gradients through checkpoints under lossy policies, and of what is not linear in what is kept.
#include <doctest/doctest.h>

#include <filesystem>

#include "autograd/checkpoint.h"
#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/record.h"
#include "compress/policies/fixed_policy.h"
#include "compress/policies/offload_policy.h"
#include "core/rng.h"
#include "tests/integration/noise.h"

using namespace frugal;

namespace {

compress::FixedPolicyOptions keep_options(int bits, compress::Rounding rounding) {
  compress::FixedPolicyOptions o;
  o.bits = bits;
  o.min_elements = 0;
  o.rounding = rounding;
  return o;
}

// The squared bias of the gradient of f(x) for x over its variance, estimated without bias: a mean
// over pairs of different draws, so that rare roundings of large effect do no harm.
double bias_of(const std::function<Variable(const Variable&)>& f, const Tensor& values, int bits,
               compress::Rounding rounding) {
  constexpr uint64_t kDraws = 100;
  const Variable x(values, true);
  const auto gradient = [&](SavePolicy* policy, uint64_t step) {
    Variable(x).zero_grad();
    const PolicyScope scope(policy);
    begin_step(step);
    const Variable y = f(scale(x, 1));
    backward(y, noise(y.shape(), 77));
    return x.grad().to_vector();
  };
  compress::FixedPolicy policy(keep_options(bits, rounding));
  const std::vector<double> exact = gradient(nullptr, 0);
  std::vector<double> sum(exact.size());
  double squares = 0, square_of_sum = 0;
  for (uint64_t step = 1; step <= kDraws; ++step) {
    const std::vector<double> draw = gradient(&policy, step);
    for (size_t i = 0; i < exact.size(); ++i) {
      sum[i] += draw[i] - exact[i];
      squares += (draw[i] - exact[i]) * (draw[i] - exact[i]);
    }
  }
  for (const double s : sum) square_of_sum += s * s;
  REQUIRE(squares > 0);
  return (square_of_sum - squares) / (kDraws - 1) / squares;
}

// With 4096 elements that are drawn 100 times, the standard deviation is about 0.0003.
constexpr double kNoBias = 0.002;

}  // namespace

TEST_CASE("checkpointed blocks give the gradients of plain ones under a lossy policy") {
  const Variable first = Variable::parameter(noise({16, 3, 3, 16}, 1, 0.1));
  const Variable second = Variable::parameter(noise({16, 3, 3, 16}, 2, 0.1));
  const Tensor input = noise({4, 8, 8, 16}, 3);
  Conv2dOptions same;
  same.padding = {1, 1};
  const auto gradients = [&](SavePolicy* policy, bool checkpointed) {
    const Variable x(input, true);
    for (const Variable& w : {first, second}) Variable(w).zero_grad();
    const PolicyScope scope(policy);
    begin_step(1);
    Variable y = scale(x, 1);
    for (const Variable& w : {first, second}) {
      const auto block = [w, same](const Variables& in) {
        return batch_norm_add_relu(conv2d(relu(in[0]), w, {}, same), in[0], {}, {}, {});
      };
      y = checkpointed ? checkpoint(block, {y}) : block({y});
    }
    backward(y, noise(y.shape(), 4));
    return std::vector{x.grad().to_vector(), first.grad().to_vector(), second.grad().to_vector()};
  };
  const auto exact = gradients(nullptr, false);
  for (const int bits : {2, 4}) {
    CAPTURE(bits);
    compress::FixedPolicy policy(keep_options(bits, compress::Rounding::dithered));
    CHECK(gradients(&policy, true) == exact);
    // An offload policy moves the blocks' inputs as they are.
    compress::OffloadOptions file;
    file.directory = std::filesystem::temp_directory_path();
    compress::OffloadPolicy offload(
        std::make_unique<compress::FixedPolicy>(keep_options(bits, compress::Rounding::dithered)),
        file, 0);
    CHECK(gradients(&offload, true) == exact);
  }
}

TEST_CASE("blocks that are recomputed from codes draw the same dropout") {
  // 16 bits are so fine that only another dropout mask would show.
  const Variable weight = Variable::parameter(noise({16, 3, 3, 16}, 1, 0.1));
  const Tensor input = noise({4, 8, 8, 16}, 3);
  Conv2dOptions same;
  same.padding = {1, 1};
  const auto gradients = [&](SavePolicy* policy) {
    Rng rng(5);
    const Variable x(input, true);
    Variable(weight).zero_grad();
    Variable y;
    {
      const PolicyScope scope(policy);
      begin_step(1);
      y = scale(x, 1);
      for (int i = 0; i < 2; ++i) {
        const auto block = [&](const Variables& in) {
          const Variable h = batch_norm(conv2d(relu(in[0]), weight, {}, same), {}, {}, {});
          return add(dropout(h, 0.5, rng.next()), in[0]);
        };
        y = checkpoint(block, {y}, &rng);
      }
    }
    const RngKey after = rng.state();
    backward(y, noise(y.shape(), 4));
    CHECK(rng.state() == after);
    return std::vector{x.grad().to_vector(), weight.grad().to_vector()};
  };
  const auto exact = gradients(nullptr);
  compress::FixedPolicyOptions keep = keep_options(16, compress::Rounding::stochastic);
  keep.pack_recomputed = true;
  compress::FixedPolicy policy(keep);
  const auto packed = gradients(&policy);
  for (size_t k = 0; k < exact.size(); ++k) {
    double error = 0, square = 0;
    for (size_t i = 0; i < exact[k].size(); ++i) {
      error += (packed[k][i] - exact[k][i]) * (packed[k][i] - exact[k][i]);
      square += exact[k][i] * exact[k][i];
    }
    CHECK(error > 0);
    // Codes are off by at most 1 / (2^16 - 1) of a range, which is some ten deviations. Few relus
    // change their sign: of 4096 values as many as lie that near to 0, one in 10^4.
    CHECK(error < 1e-2 * square);
  }
}

TEST_CASE("functions that are not linear in what they keep give unbiased gradients") {
  using compress::Rounding;
  // Most outputs of tanh and sigmoid are near their ends, and most of softmax's near 0.
  const Tensor x = noise({256, 16}, 5, 2);
  const auto positive = [](const Variable& v) { return add_scalar(mul(v, v), 0.5); };
  struct Function {
    std::string name;
    std::function<Variable(const Variable&)> f;
  };
  const std::vector<Function> functions = {
      {"tanh", [](const Variable& v) { return tanh(v); }},
      {"sigmoid", [](const Variable& v) { return sigmoid(v); }},
      {"softmax", [](const Variable& v) { return softmax(v); }},
      {"log_softmax", [](const Variable& v) { return log_softmax(v); }},
      {"log", [&](const Variable& v) { return log(positive(v)); }},
      {"sqrt", [&](const Variable& v) { return sqrt(positive(v)); }},
      {"div", [&](const Variable& v) { return div(v, positive(v)); }},
  };
  for (const Function& function : functions)
    for (const int bits : {2, 4})
      for (const Rounding rounding : {Rounding::stochastic, Rounding::dithered}) {
        CAPTURE(function.name);
        CAPTURE(bits);
        CAPTURE(static_cast<int>(rounding));
        CHECK(bias_of(function.f, x, bits, rounding) < kNoBias);
      }
}

TEST_CASE("gelu and silu of a rebuilt input keep what they can correct") {
  // A policy would rebuild the norm's output at no cost, with noise of unknown variance.
  const Variable weight = Variable::parameter(Tensor::full({16}, 1.5));
  const auto through = [&](Variable (*f)(const Variable&)) {
    return [&weight, f](const Variable& v) { return f(batch_norm(v, weight, {}, {})); };
  };
  const auto exact_gelu = [](const Variable& v) { return gelu(v); };
  const Tensor x = noise({256, 16}, 6);
  CHECK(bias_of(through(exact_gelu), x, 4, compress::Rounding::dithered) < kNoBias);
  CHECK(bias_of(through(silu), x, 4, compress::Rounding::dithered) < kNoBias);
}
