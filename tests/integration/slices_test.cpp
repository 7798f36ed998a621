// Slices of codes, and what backward holds at most.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "autograd/detection_functions.h"
#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/record.h"
#include "compress/policies/fixed_policy.h"
#include "tests/integration/images.h"

using namespace frugal;

namespace {

compress::FixedPolicyOptions sliced_options(int bits, int64_t slice_bytes) {
  compress::FixedPolicyOptions options;
  options.bits = bits;
  options.min_elements = 0;
  options.slice_bytes = slice_bytes;
  return options;
}

// A step of `blocks` residual blocks. The leaves are gone from the bytes counted: they are inputs.
struct ResidualNet {
  ResidualNet(Device on, int blocks) : device(on) {
    CategoryScope scope(Category::input);
    x = Variable(values({kN, kSide, kSide, kC}, device, 1), true);
    for (int i = 0; i < 2 * blocks; ++i)
      weights.push_back(Variable::parameter(values({kC, 3, 3, kC}, device, i + 2)));
  }
  // The peak of backward over what lay there before forward.
  int64_t step(SavePolicy* policy) {
    PolicyScope scope(policy);
    begin_step(1);
    const int64_t before = allocator(device).report().live_total;
    Conv2dOptions options;
    options.padding = {1, 1};
    Variable y = batch_norm_relu(scale(x, 1), {}, {}, {});
    for (size_t i = 0; i < weights.size(); i += 2) {
      const Variable a = batch_norm_relu(conv2d(y, weights[i], {}, options), {}, {}, {});
      y = batch_norm_add_relu(conv2d(a, weights[i + 1], {}, options), y, {}, {}, {});
    }
    const Variable loss = sum(y);
    y = {};
    kept = allocator(device).report().live_total - before;
    allocator(device).reset_peak();
    backward(loss);
    return allocator(device).report().peak_total - before;
  }
  Device device;
  Variable x;
  Variables weights;
  int64_t kept = 0;
};

}  // namespace

TEST_CASE("slices of codes give the gradients that whole codes give") {
  for (int bits : {2, 4}) {
    CAPTURE(bits);
    // One block: what a rebuild passes through is rounded anew, in groups of its own slice.
    ResidualNet net(kCpu, 1), other(kCpu, 1);
    compress::FixedPolicy whole(sliced_options(bits, 0)), sliced(sliced_options(bits, 5 * kImage));
    net.step(&whole);
    other.step(&sliced);
    CHECK(net.x.grad().to_vector() == other.x.grad().to_vector());
    for (size_t i = 0; i < net.weights.size(); ++i) {
      const auto a = net.weights[i].grad().to_vector(), b = other.weights[i].grad().to_vector();
      double off = 0, largest = 0;
      for (size_t k = 0; k < a.size(); ++k) {
        off = std::max(off, std::abs(a[k] - b[k]));
        largest = std::max(largest, std::abs(a[k]));
      }
      CHECK(off <= 1e-5 * largest);
    }
  }
}

TEST_CASE("backward holds two full tensors and slices") {
  ResidualNet net(kMeta, 3);
  compress::FixedPolicy sliced(sliced_options(2, kImage)), whole(sliced_options(2, 0));
  const int64_t peak = net.step(&sliced), kept = net.kept;
  const int64_t unsliced = ResidualNet(kMeta, 3).step(&whole);
  // A slice each: the codes, what they give, both gradients of a norm, that of the convolution.
  CHECK(peak < kept + 2 * kFull + 5 * kImage);
  CHECK(unsliced > kept + 3 * kFull);
}

TEST_CASE("the gradient of a convolution's input and slices of that input are not there together") {
  const auto peak = [](int64_t slice_bytes) {
    compress::FixedPolicy policy(sliced_options(4, slice_bytes));
    PolicyScope scope(&policy);
    begin_step(1);
    const Variable x(values({kN, kSide, kSide, kC}, kMeta, 1));
    const Variable scales = Variable::parameter(values({kC}, kMeta, 2));
    const Variable weight = Variable::parameter(values({kC / 4, 3, 3, kC}, kMeta, 3));
    Conv2dOptions options;
    options.padding = {1, 1};
    const Variable loss = sum(conv2d(batch_norm_relu(x, scales, {}, {}), weight, {}, options));
    const int64_t before = allocator(kMeta).report().live_total;
    allocator(kMeta).reset_peak();
    backward(loss);
    return allocator(kMeta).report().peak_total - before;
  };
  CHECK(peak(5 * kImage) < kFull + kFull / 4 + 2 * kImage);
}

namespace {

// A head of a detector: a convolution whose channels are anchors and classes, and their loss.
struct Head {
  static constexpr int64_t kAnchors = 3, kClasses = 32;
  static constexpr int64_t kLogits = kN * kSide * kSide * kAnchors * kClasses * 4;  // bytes
  Head(Device device, int bits, int64_t slice_bytes) {
    compress::FixedPolicy policy(sliced_options(bits, slice_bytes));
    PolicyScope scope(&policy);
    begin_step(1);
    x = Variable(values({kN, kSide, kSide, kC}, device, 1), true);
    weight = Variable::parameter(values({kAnchors * kClasses, 3, 3, kC}, device, 2));
    bias = Variable::parameter(values({kAnchors * kClasses}, device, 3));
    Conv2dOptions options;
    options.padding = {1, 1};
    const Tensor classes = Tensor::zeros({kN * kSide * kSide * kAnchors}, DType::i64, device);
    Allocator& memory = allocator(device);
    const int64_t before = memory.report().live_total;
    memory.reset_peak();
    Variable map = reshape(conv2d(batch_norm_relu(scale(x, 1), {}, {}, {}), weight, bias, options),
                           {kN, -1, kClasses});
    Variable rows = reshape(map, {-1, kClasses});
    map = {};
    const Variable loss = scale(sigmoid_focal_loss(std::move(rows), classes), 0.1);
    forward = memory.report().peak_total - before;
    const int64_t kept = memory.report().live_total;
    memory.reset_peak();
    backward(loss);
    peak = memory.report().peak_total - kept;
  }
  Variable x, weight, bias;
  int64_t forward = 0, peak = 0;
};

void check_near(const Tensor& found, const Tensor& expected) {
  const auto a = found.to_vector(), b = expected.to_vector();
  double off = 0, largest = 0;
  for (size_t k = 0; k < a.size(); ++k) {
    off = std::max(off, std::abs(a[k] - b[k]));
    largest = std::max(largest, std::abs(b[k]));
  }
  CHECK(off <= 1e-5 * largest);
}

}  // namespace

TEST_CASE("the packed gradient of a loss comes in slices through reshapes to the convolution") {
  for (const int bits : {2, 4}) {
    CAPTURE(bits);
    const Head whole(kCpu, bits, 0), sliced(kCpu, bits, Head::kLogits / kN * 5);
    CHECK(sliced.x.grad().to_vector() == whole.x.grad().to_vector());
    check_near(sliced.weight.grad(), whole.weight.grad());
    check_near(sliced.bias.grad(), whole.bias.grad());
    CHECK(sliced.peak < whole.peak - Head::kLogits / 2);
  }
}

TEST_CASE("the gradient of a focal loss takes the place of the logits") {
  const Head head(kMeta, 4, 0);
  CHECK(head.forward < Head::kLogits * 3 / 2);
}

TEST_CASE("a negative number of bytes is no slice") {
  CHECK_THROWS_WITH_AS(compress::FixedPolicy(sliced_options(2, -1)),
                       doctest::Contains("[compression] expected slice_bytes >= 0, got -1"), Error);
}
