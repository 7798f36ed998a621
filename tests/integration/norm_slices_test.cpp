// Norms that take a large x in slices of the batch: the same bits and saves, and less memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/record.h"
#include "compress/policies/fixed_policy.h"
#include "models/zoo/resnet.h"
#include "ops/dense/copy.h"
#include "tests/error_bounds.h"

using namespace frugal;
using compress::FixedPolicy;
using compress::FixedPolicyOptions;
using frugal_test::sum_bound;

namespace {

Tensor waves(const Shape& shape, int seed, Device device = kCpu) {
  Tensor x = Tensor::empty(shape, DType::f32, device);
  if (device == kCpu)
    for (int64_t i = 0; i < x.numel(); ++i)
      x.mut<float>()[i] = static_cast<float>(std::sin(static_cast<double>(i) * 0.37 + seed) +
                                             0.3 * std::cos(static_cast<double>(i * i % 97)));
  return x;
}

FixedPolicyOptions in_slices(int bits, int64_t slice_bytes) {
  FixedPolicyOptions options;
  options.bits = bits;
  options.min_elements = 0;
  options.slice_bytes = slice_bytes;
  return options;
}

struct Result {
  std::vector<double> y, dx, mean, var;
  std::vector<std::vector<double>> weights;      // their gradients
  int64_t forward = 0, backward = 0, saved = 0;  // bytes: two peaks, and what backward begins with
};

using Leaves = std::vector<Variable>;

// `net` gives the output of x and adds its parameters to the leaves.
template <class Net>
Result run(const FixedPolicyOptions& options, const Shape& shape, Net net) {
  FixedPolicy policy(options);
  PolicyScope scope(&policy);
  begin_step(3);
  const BatchNormStats stats{Tensor::zeros({64}), Tensor::ones({64})};
  Variable leaf(waves(shape, 1), true);
  Leaves leaves;
  Variable in = scale(leaf, 1.5);
  Allocator& memory = allocator(kCpu);
  const int64_t before = memory.report().live_total;
  memory.reset_peak();
  Variable y = net(std::move(in), leaves, stats);
  Result result;
  result.forward = memory.report().peak_total - before;
  result.y = y.value().to_vector();
  Variable loss = sum(mul(y, y));
  y = {};
  result.saved = memory.report().live_total - before;
  memory.reset_peak();
  backward(std::exchange(loss, {}));
  result.backward = memory.report().peak_total - before;
  result.dx = leaf.grad().to_vector();
  result.mean = stats.running_mean.to_vector();
  result.var = stats.running_var.to_vector();
  for (const Variable& each : leaves) result.weights.push_back(each.grad().to_vector());
  return result;
}

Variable parameter(Leaves& leaves, const Shape& shape) {
  leaves.push_back(Variable::parameter(waves(shape, 10 + static_cast<int>(leaves.size()))));
  return leaves.back();
}

// Weight gradients are sums over slices; everything else has the same bits.
void check_same(const Result& sliced, const Result& whole) {
  CHECK(sliced.y == whole.y);
  CHECK(sliced.dx == whole.dx);
  CHECK(sliced.mean == whole.mean);
  CHECK(sliced.var == whole.var);
  CHECK(sliced.saved == whole.saved);
  REQUIRE(sliced.weights.size() == whole.weights.size());
  for (size_t i = 0; i < whole.weights.size(); ++i) {
    double largest = 0;
    for (const double value : whole.weights[i]) largest = std::max(largest, std::abs(value));
    for (size_t k = 0; k < whole.weights[i].size(); ++k)
      REQUIRE(std::abs(sliced.weights[i][k] - whole.weights[i][k]) <= 1e-3 * largest);
  }
}

double norm(const std::vector<double>& a) {
  double squares = 0;
  for (const double value : a) squares += value * value;
  return std::sqrt(squares);
}

double distance_of(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  std::vector<double> apart(a.size());
  for (size_t i = 0; i < a.size(); ++i) apart[i] = a[i] - b[i];
  return norm(apart);
}

constexpr int64_t kItem = 16 * 16 * 64 * 4;  // bytes of a sample of the norms' input
const Shape kInput{15, 16, 16, 16};

Variable norm_of_conv(Variable x, Leaves& leaves, const BatchNormStats& stats, bool relu) {
  const Variable w = parameter(leaves, {64, 1, 1, 16});
  const Variable g = parameter(leaves, {64}), b = parameter(leaves, {64});
  return relu ? batch_norm_relu(conv2d(x, w, {}, {}), g, b, stats)
              : batch_norm(conv2d(x, w, {}, {}), g, b, stats);
}

Variable add_of_conv(Variable x, Leaves& leaves, const BatchNormStats& stats) {
  const Variable side = parameter(leaves, {64, 1, 1, 16}), w = parameter(leaves, {64, 1, 1, 16});
  const Variable g = parameter(leaves, {64}), b = parameter(leaves, {64});
  const Conv2dOptions options;
  Variable residual = conv2d(x, side, {}, options);
  const Variable none;
  return conv2d_batch_norm_add_relu({x, w, none, options}, std::move(residual), g, b, stats);
}

}  // namespace

TEST_CASE("a norm writes its output over an x that is packed in slices") {
  for (const bool relu : {false, true})
    for (const int bits : {1, 2, 4}) {  // one bit carries no sign, so a mask is kept
      CAPTURE(relu);
      CAPTURE(bits);
      const auto net = [&](Variable x, Leaves& leaves, const BatchNormStats& stats) {
        return norm_of_conv(std::move(x), leaves, stats, relu);
      };
      const Result whole = run(in_slices(bits, 0), kInput, net);
      const Result sliced = run(in_slices(bits, 2 * kItem), kInput, net);
      check_same(sliced, whole);
      CHECK(sliced.forward < whole.forward - 10 * kItem);
    }
}

TEST_CASE("an x that somebody else holds is not written over") {
  Tensor held;
  const auto net = [&](Variable x, Leaves& leaves, const BatchNormStats& stats) {
    const Variable z = conv2d(x, parameter(leaves, {64, 1, 1, 16}), {}, {});
    held = z.value();
    const Tensor before = ops::clone(held);
    const Variable y = batch_norm_relu(z, parameter(leaves, {64}), parameter(leaves, {64}), stats);
    CHECK(held.to_vector() == before.to_vector());
    return y;
  };
  run(in_slices(2, 2 * kItem), kInput, net);
}

TEST_CASE("the output of a cheap convolution before a residual norm is never whole") {
  for (const int bits : {1, 2, 4}) {
    CAPTURE(bits);
    const Result whole = run(in_slices(bits, 0), kInput, add_of_conv);
    const Result sliced = run(in_slices(bits, 2 * kItem), kInput, add_of_conv);
    check_same(sliced, whole);
    CHECK(sliced.forward < whole.forward - 9 * kItem);
  }
}

TEST_CASE("without slices, an input of the convolution that is moved in is freed before the norm") {
  const auto forward = [&](bool moved) {
    const auto net = [&](Variable x, Leaves& leaves, const BatchNormStats& stats) {
      const Variable side = parameter(leaves, {64, 1, 1, 16}),
                     w = parameter(leaves, {64, 1, 1, 16});
      const Variable g = parameter(leaves, {64}), b = parameter(leaves, {64}), none;
      const Conv2dOptions options;
      Variable residual = conv2d(x, side, {}, options);
      Variable h = tanh(x);
      Conv2dCall call{h, w, none, options};
      if (moved) h = {};
      return conv2d_batch_norm_add_relu(std::move(call), std::move(residual), g, b, stats);
    };
    return run(in_slices(8, 0), kInput, net).forward;
  };
  CHECK(forward(true) < forward(false) - 2 * kItem);
}

TEST_CASE("a codec that needs the whole tensor gets it") {
  FixedPolicyOptions options = in_slices(2, 2 * kItem), whole = in_slices(2, 0);
  options.axis = whole.axis = compress::GroupAxis::row;
  check_same(run(options, kInput, add_of_conv), run(whole, kInput, add_of_conv));
}

TEST_CASE("gradients of a block with a projection have the same bits in slices") {
  const auto net = [&](Variable x, Leaves& leaves, const BatchNormStats& stats) {
    const auto norm = [&](Variable z) {
      const Variable g = parameter(leaves, {64});
      return batch_norm_relu(std::move(z), g, parameter(leaves, {64}), stats);
    };
    Conv2dOptions strided, spread;
    strided.stride = {2, 2};
    spread.stride = {2, 2};
    spread.padding = {1, 1};
    // Something that gives x a recipe, as the blocks before would.
    Variable in = norm(conv2d(x, parameter(leaves, {64, 1, 1, 16}), {}, {}));
    Variable z = norm(conv2d(in, parameter(leaves, {64, 1, 1, 64}), {}, {}));
    z = norm(conv2d(z, parameter(leaves, {64, 3, 3, 64}), {}, spread));
    const Variable g = parameter(leaves, {64}), b = parameter(leaves, {64});
    Variable side =
        batch_norm(conv2d(in, parameter(leaves, {64, 1, 1, 64}), {}, strided), g, b, stats);
    const Variable w = parameter(leaves, {64, 1, 1, 64}), none;
    const Conv2dOptions options;
    return conv2d_batch_norm_add_relu({z, w, none, options}, std::move(side), g, b, stats);
  };
  const Shape shape{80, 16, 16, 16};
  // Many bits, because a tensor that is rebuilt in slices is rounded anew in each of them.
  const Result whole = run(in_slices(12, 0), shape, net);
  const Result sliced = run(in_slices(12, kItem), shape, net);
  check_same(sliced, whole);
}

TEST_CASE("a projection releases its large input before it makes its output") {
  // Both forms save the same. The one that gives up x convolves a copy of the pixels that the
  // window meets, for which an instruction set may have another kernel, with another order of
  // additions.
  const Shape shape{8, 48, 48, 256};
  const int64_t bytes = shape.numel() * 4;
  const auto with = [&](int bits, bool moved) {
    const auto net = [&](Variable x, Leaves& leaves, const BatchNormStats&) {
      Conv2dOptions strided;
      strided.stride = {2, 2};
      const Variable w = parameter(leaves, {512, 1, 1, 256}), b = parameter(leaves, {512});
      Variable in = relu(x);
      x = {};
      allocator(kCpu).reset_peak();
      Variable held = moved ? Variable() : in;
      return conv2d(std::move(in), w, b, strided);
    };
    FixedPolicyOptions options = in_slices(bits, 1 << 20);
    return run(options, shape, net);
  };
  for (const int bits : {0, 4}) {
    CAPTURE(bits);
    const Result moved = with(bits, true), held = with(bits, false);
    // An error of dy, 2 y, reaches a gradient as its product with x or w, whose norms bound it
    // (Cauchy-Schwarz), however much the terms of the gradient cancel.
    const double y = 2 * sum_bound(256), dy = 2 * norm(held.y);
    const double n = 8 * 24 * 24, x = 1.5 * norm(waves(shape, 1).to_vector());
    const double w = norm(waves({512, 1, 1, 256}, 10).to_vector());
    CHECK(distance_of(moved.y, held.y) <= y * norm(held.y));
    CHECK(distance_of(moved.dx, held.dx) <= 1.5 * (y + 2 * sum_bound(512)) * w * dy);
    REQUIRE(held.weights.size() == 2);
    CHECK(distance_of(moved.weights[0], held.weights[0]) <=
          (y + 2 * sum_bound(8 * 24 * 24)) * x * dy);
    CHECK(distance_of(moved.weights[1], held.weights[1]) <=
          (y + 2 * sum_bound(8 * 24 * 24)) * std::sqrt(n) * dy);
    CHECK(moved.saved == held.saved);
    // The pixels that are kept take a quarter of x, and y takes half of x.
    if (bits > 0) CHECK(moved.forward <= held.forward - bytes / 8);
  }
}

// The largest tensors of such a step take 0.82 GB each.
TEST_CASE("ResNet-50 with a batch of 256 images takes less than 1.9 GB") {
  const int64_t before = allocator(kMeta).report().live_total;
  models::Init init;
  init.device = kMeta;
  models::ResNet net(init, models::resnet_options("resnet50"));
  FixedPolicyOptions options;
  options.bits = 2;
  FixedPolicy policy(options);
  allocator(kMeta).reset_peak();
  Variable loss;
  {
    PolicyScope scope(&policy);
    begin_step(0);
    Context context;
    context.training = true;
    context.device = kMeta;
    Tensor input;
    {
      CategoryScope category(Category::input);
      input = Tensor::empty({256, 224, 224, 3}, DType::f32, kMeta);
    }
    const ReleasedInput released(input);
    loss = cross_entropy(net.forward(Variable(std::move(input)), context),
                         Tensor::empty({256}, DType::i64, kMeta));
  }
  const auto peak = [&] { return allocator(kMeta).report().peak_total - before; };
  CHECK(peak() < 1'900'000'000);
  allocator(kMeta).reset_peak();
  backward(std::exchange(loss, {}));
  CHECK(peak() < 1'900'000'000);
}

TEST_CASE("a step on meta that stands for one on CUDA takes tensors whole") {
  const auto peak = [](bool as_cuda) {
    const MetaAsCuda device(as_cuda);
    FixedPolicy policy(in_slices(2, 2 * kItem));
    PolicyScope scope(&policy);
    begin_step(0);
    const Variable x(waves(kInput, 0, kMeta), true);
    const Variable w = Variable::parameter(waves({64, 1, 1, 16}, 0, kMeta));
    const Variable g = Variable::parameter(waves({64}, 0, kMeta));
    Allocator& memory = allocator(kMeta);
    const int64_t before = memory.report().live_total;
    memory.reset_peak();
    const Variable y = batch_norm_relu(conv2d(x, w, {}, {}), g, g, {});
    return memory.report().peak_total - before;
  };
  CHECK(peak(false) < peak(true) - 10 * kItem);
}
