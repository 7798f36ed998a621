// What kernels take on the CPU, and what `meta` counts of it.
#include "ops/kernel_memory.h"

#include <doctest/doctest.h>

#include <functional>

#include "core/memory.h"
#include "core/parallel.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/elu.h"
#include "ops/dense/matmul.h"
#include "ops/dense/reduce.h"
#include "ops/detection/detection_loss.h"
#include "ops/graph/graph_attention.h"
#include "ops/image/conv2d.h"
#include "ops/image/interpolate.h"
#include "ops/image/pool2d.h"
#include "ops/loss/binary_cross_entropy.h"
#include "ops/loss/dice.h"
#include "ops/loss/focal.h"
#include "ops/loss/soft_cross_entropy.h"
#include "ops/precision.h"
#include "ops/sequence/attention.h"
#include "ops/sequence/rotary.h"

namespace frugal::ops {
namespace {

// The most bytes that `work` holds at once.
int64_t peak_of(Device device, const std::function<void(Device)>& work) {
  Allocator& memory = allocator(device);
  memory.reset_peak();
  const int64_t before = memory.report().live_total;
  work(device);
  return memory.report().peak_total - before;
}

struct Convolution {
  Shape x, weight;
  Conv2dOptions options;
};

// A forward and a backward pass.
void run(const Convolution& layer, Device device, DType dtype = DType::f32) {
  const Tensor x = Tensor::zeros(layer.x, dtype, device);
  const Tensor weight = Tensor::zeros(layer.weight, DType::f32, device);
  const Tensor y = conv2d(x, weight, {}, layer.options);
  const Tensor dw = conv2d_backward_weight(y, x, layer.weight, layer.options);
  add_conv2d_backward_weight(dw, y, x, layer.options);
  const Tensor dx = conv2d_backward_input(y, weight, layer.x, layer.options);
  add_conv2d_backward_input(dx, y, weight, layer.options);
}

TEST_CASE("with a scope, meta counts what convolutions and products take on the CPU") {
  // Among them a first convolution of images, whose partial sums are the largest.
  const Convolution layers[] = {{{16, 32, 32, 3}, {64, 3, 3, 3}, {{1, 1}, {1, 1}}},
                                {{2, 32, 32, 3}, {64, 7, 7, 3}, {{2, 2}, {3, 3}}},
                                {{4, 8, 8, 64}, {64, 3, 3, 64}, {{1, 1}, {1, 1}}},
                                {{4, 8, 8, 64}, {128, 1, 1, 64}, {{2, 2}, {0, 0}}},
                                {{2, 8, 7, 24}, {8, 1, 1, 24}, {{3, 3}, {0, 0}}},
                                {{2, 6, 6, 32}, {64, 3, 3, 16}, {{1, 1}, {1, 1}, {1, 1}, 2}},
                                {{2, 4, 5, 1024}, {320, 3, 3, 1024}, {{1, 1}, {1, 1}}},
                                {{2, 9, 9, 64}, {64, 3, 3, 64}, {{1, 1}, {8, 8}, {8, 8}}}};
  const auto check_all = [&](DType dtype) {
    CAPTURE(name_of(dtype));
    // A sum of two tensors of bf16 has a buffer for 1,024 values of each tensor and thread.
    const int64_t buffers = dtype == DType::bf16 ? num_threads() * 3 * 1024 * 4 : 0;
    int larger = 0;
    for (const Convolution& layer : layers) {
      CAPTURE(layer.x);
      CAPTURE(layer.weight);
      const auto work = [&](Device device) { run(layer, device, dtype); };
      const int64_t real = peak_of(kCpu, work), bare = peak_of(kMeta, work);
      const KernelMemoryScope counts;
      CHECK(peak_of(kMeta, work) <= real);
      CHECK(peak_of(kMeta, work) >= real - buffers);
      larger += real > bare + bare / 100 ? 1 : 0;
    }
    CHECK(larger > 0);  // otherwise the test shows nothing
    const auto product = [&](Device device) {
      const Tensor x = Tensor::zeros({512, 96}, dtype, device);
      const Tensor weight = Tensor::zeros({64, 96}, DType::f32, device);
      const Tensor y = linear(x, weight, Tensor::zeros({64}, DType::f32, device));
      const Tensor dw = linear_backward_weight(y, x);
      add_linear_backward_weight(dw, y, x);
      linear_backward_input(y, weight);
      matmul(x.view({8, 64, 96}), cast(weight, dtype).transpose(0, 1));
    };
    const KernelMemoryScope counts;
    CHECK(peak_of(kMeta, product) == peak_of(kCpu, product));
  };
  check_all(DType::f32);
  check_all(DType::bf16);  // where the processor multiplies bf16
  set_bf16_products(false);
  check_all(DType::bf16);  // with copies in f32
  set_bf16_products(true);
}

TEST_CASE("with a scope, meta counts the buffers of attention's threads") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool keeps : {false, true})
      for (const double cap : {0.0, 5.0}) {
        CAPTURE(keeps);
        CAPTURE(cap);
        const auto work = [&](Device device) {
          const Tensor q = Tensor::zeros({2, 150, 4, 40}, dtype, device);
          const Tensor k = Tensor::zeros({2, 70, 2, 40}, dtype, device);
          Tensor bias;  // none beside a cap
          if (cap == 0) bias = Tensor::zeros({4, 150, 70}, DType::f32, device);
          const AttentionInputs in{q, k, k, {}, bias};
          const AttentionOptions options{.soft_cap = cap};
          AttentionOutput out = attention(in, options);
          if (!keeps) out = {};
          for (const bool adds : {false, true}) {
            AttentionGradients g{Tensor::zeros(q.shape(), dtype, device),
                                 Tensor::zeros(k.shape(), dtype, device),
                                 Tensor::zeros(k.shape(), dtype, device),
                                 {}};
            if (adds && bias.defined()) g.dbias = Tensor::zeros(bias.shape(), DType::f32, device);
            attention_backward(q, in, out, options, g);
          }
        };
        const int64_t bare = peak_of(kMeta, work), real = peak_of(kCpu, work);
        CHECK(real > bare);
        const KernelMemoryScope counts;
        CHECK(peak_of(kMeta, work) == real);
      }
}

TEST_CASE("with a scope, meta counts what attention over a graph holds of the nodes") {
  constexpr int64_t kNodes = 2000, kHeads = 4, kWidth = 6;
  const Tensor edges = Tensor::empty({2, kNodes}, DType::i64);
  for (int64_t i = 0; i < kNodes; ++i) {  // a ring
    edges.mut<int64_t>()[i] = i;
    edges.mut<int64_t>()[kNodes + i] = (i + 1) % kNodes;
  }
  const Graph graph = make_graph(edges, kNodes);
  int larger = 0;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    CAPTURE(name_of(dtype));
    const auto tensor = [&](Shape shape, DType type, Device device) {
      return Tensor::zeros(shape, type, device);
    };
    const std::function<void(Device)> works[] = {
        [&](Device device) {
          const Tensor h = tensor({kNodes, kHeads, kWidth}, dtype, device),
                       a = tensor({kNodes, kHeads}, dtype, device);
          graph_attention(graph, h, a, a, {});
        },
        [&](Device device) {
          const Tensor h = tensor({kNodes, kHeads, kWidth}, dtype, device),
                       a = tensor({kNodes, kHeads}, dtype, device);
          graph_attention_backward(graph, h, h, a, a, {});
        },
        [&](Device device) {
          const Tensor h = tensor({kNodes, kHeads, kWidth}, dtype, device),
                       w = tensor({1, kHeads, kWidth}, DType::f32, device);
          const Tensor s = head_scores(h, w);
          head_scores_backward_weight(s, h);
          head_scores_backward_input(s, w);
        }};
    for (const auto& work : works) {
      const int64_t bare = peak_of(kMeta, work), real = peak_of(kCpu, work);
      larger += real > bare ? 1 : 0;
      const KernelMemoryScope counts;
      CHECK(peak_of(kMeta, work) == real);
    }
  }
  CHECK(larger == 5);  // scores in f32 hold little
}

TEST_CASE("attention over a graph of bf16 has copies in f32 of what it reads alone") {
  constexpr int64_t kNodes = 1000;
  const Graph graph = make_graph(Tensor::zeros({2, 1}, DType::i64), kNodes);
  const Tensor h = Tensor::zeros({kNodes, 2, 64}, DType::bf16);
  const Tensor a = Tensor::zeros({kNodes, 2}, DType::bf16);
  const int64_t one = h.nbytes(), scores = 16 * kNodes * int64_t{sizeof(float)};
  const auto beside = [&](const std::function<void()>& work) {
    return peak_of(kCpu, [&](Device) { work(); });
  };
  // The output and a copy of h, of twice its bytes; in the backward pass one of dy, too.
  CHECK(beside([&] { graph_attention(graph, h, a, a, {}); }) < 3 * one + scores);
  CHECK(beside([&] { graph_attention_backward(graph, h, h, a, a, {}); }) < 5 * one + scores);
}

TEST_CASE("kernels of f32 take little beside tensors of bf16") {
  const Tensor x = Tensor::zeros({64, 32, 32, 32}, DType::bf16);
  const Tensor scale = Tensor::zeros({64, 1, 1, 32}, DType::bf16);
  const auto beside = [&](const std::function<void()>& work) {
    return peak_of(kCpu, [&](Device) { work(); });
  };
  const int64_t copies = int64_t{1} << 21;  // bytes, a tenth of copies of whole tensors
  CHECK(beside([&] { binary(Binary::mul, x, scale); }) < x.nbytes() + copies);
  // Blocks are small beside small tensors, too.
  const Tensor small = Tensor::zeros({2000, 80}, DType::bf16),
               bias = Tensor::zeros({80}, DType::bf16);
  CHECK(beside([&] { binary(Binary::add, small, bias); }) == small.nbytes());
  CHECK(beside([&] { elu(x, true); }) < x.nbytes() + x.nbytes() / 16 + copies);
  CHECK(beside([&] { argmax(x, -1); }) < x.nbytes() / 16 + copies);
  CHECK(beside([&] { rotary(x, {}, {}); }) < x.nbytes() + copies);
  CHECK(beside([&] { interpolate(x, 16, 16, {}); }) < x.nbytes() / 4 + copies);
  CHECK(beside([&] { avg_pool2d(x, {{2, 2}, {2, 2}}); }) < x.nbytes() / 4 + copies);
  const Tensor logits = x.view({x.numel() / 64, 64});
  const Tensor none = Tensor::full({logits.size(0)}, -1, DType::i64);
  CHECK(beside([&] { sigmoid_focal(logits, none, {}, {}); }) < x.nbytes() + copies);
  const Tensor first = Tensor::zeros({logits.size(0)}, DType::i64);
  const Tensor shares = Tensor::zeros(logits.shape());
  CHECK(beside([&] { binary_cross_entropy(logits, logits); }) < x.nbytes() + copies);
  CHECK(beside([&] { soft_cross_entropy(logits, shares); }) < x.nbytes() + copies);
  CHECK(beside([&] { focal_cross_entropy(logits, first); }) < x.nbytes() + copies);
  CHECK(beside([&] { dice_loss(logits, first); }) < x.nbytes() + copies);
}

TEST_CASE("a gradient that is added to another takes one copy of the weight's size") {
  const Shape weight{128, 3, 3, 128};
  const Tensor x = Tensor::zeros({1, 8, 8, 128}), y = Tensor::zeros({1, 8, 8, 128});
  const Conv2dOptions options{{1, 1}, {1, 1}};
  const Tensor sum = Tensor::zeros(weight);
  const int64_t fresh =
      peak_of(kCpu, [&](Device) { conv2d_backward_weight(y, x, weight, options); });
  const int64_t added =
      peak_of(kCpu, [&](Device) { add_conv2d_backward_weight(sum, y, x, options); });
  // Without layouts of its own, oneDNN writes the gradient directly: then there is nothing to save.
  if (fresh > sum.nbytes() * 3 / 2) CHECK(added <= fresh - sum.nbytes());
}

TEST_CASE("a convolution with a large weight takes little beside its operands") {
  const Conv2dOptions options{{1, 1}, {1, 1}};
  // The most beside the result, in bytes, for a weight of so many output channels.
  struct Taken {
    int64_t y, dw, dx, added;
  };
  const auto taken = [&](int64_t channels) {
    const Shape weight{channels, 3, 3, 1024};
    const Tensor w = Tensor::zeros(weight), x = Tensor::zeros({1, 4, 4, 1024}),
                 y = Tensor::zeros({1, 4, 4, channels});
    return Taken{
        peak_of(kCpu, [&](Device) { conv2d(x, w, {}, options); }) - y.nbytes(),
        peak_of(kCpu, [&](Device) { conv2d_backward_weight(y, x, weight, options); }) - w.nbytes(),
        peak_of(kCpu, [&](Device) { conv2d_backward_input(y, w, x.shape(), options); }) -
            x.nbytes(),
        peak_of(kCpu, [&](Device) { add_conv2d_backward_input(x, y, w, options); })};
  };
  const Taken part = taken(192), large = taken(3 * 192);
  const int64_t more = int64_t{1} << 20;  // than for one part: small tensors
  CHECK(large.y <= part.y + more);
  CHECK(large.dw <= part.dw + more);
  // Where no kernel adds to dx, each takes the whole weight.
  if (part.added < part.dx + (int64_t{1} << 16)) {
    CHECK(large.dx <= part.dx + more);
    CHECK(large.added <= part.added + more);
  }
}

TEST_CASE("windows that lie mostly in padding are not written to memory") {
  // One of the 9 taps meets all pixels, four meet an eighth of them, and four a 64th.
  const Conv2dOptions options{{1, 1}, {28, 28}, {28, 28}};
  const Shape weight{64, 3, 3, 64};
  const Tensor x = Tensor::zeros({1, 32, 32, 64});
  const int64_t taken =
      peak_of(kCpu, [&](Device) { conv2d_backward_weight(x, x, weight, options); });
  CHECK(taken < weight.numel() * 4 + x.nbytes());
}

TEST_CASE("without a scope, meta counts the same on every machine") {
  const Convolution layer{{16, 32, 32, 3}, {64, 3, 3, 3}, {{1, 1}, {1, 1}}};
  const auto work = [&](Device device) { run(layer, device); };
  const auto bytes = [](const Shape& shape) { return shape.numel() * 4; };
  const int64_t least = bytes(layer.x) + 2 * bytes(layer.weight) + bytes({16, 32, 32, 64});
  CHECK(peak_of(kMeta, work) == least + std::max(2 * bytes(layer.x), bytes(layer.weight)));
  CHECK_FALSE(counts_kernel_memory(kMeta));
  {
    const KernelMemoryScope off(false);
    CHECK_FALSE(counts_kernel_memory(kMeta));
    const KernelMemoryScope on;
    CHECK(counts_kernel_memory(kMeta));
    CHECK_FALSE(counts_kernel_memory(kCpu));
    const KernelMemoryScope inner(false);
    CHECK(counts_kernel_memory(kMeta));
  }
  CHECK_FALSE(counts_kernel_memory(kMeta));
}

}  // namespace
}  // namespace frugal::ops
