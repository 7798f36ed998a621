// Attention of bf16 that cuDNN's fused engines take: packed q, k and v, causal or not, and a
// backward pass from what they kept.
#include "ops/cuda/cudnn_attention.h"
#include "ops/library_fallbacks.h"
#include "ops/sequence/attention.h"
#include "tests/cuda/gpu.h"
#include "tests/ops/samples.h"

namespace frugal::ops {
namespace {

Tensor rounded(const Shape& shape, uint64_t seed) {
  return cast(normals(shape, seed, DType::bf16), DType::f32);
}

double distance(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  double most = 0;
  for (size_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(x[i] - y[i]));
  return most;
}

void compare(int64_t n, int64_t t, int64_t heads, int64_t d, bool causal) {
  CAPTURE(t);
  CAPTURE(causal);
  const Tensor packed = rounded({n, t, 3, heads, d}, 1), dy = rounded({n, t, heads, d}, 2);
  AttentionOptions options;
  options.causal = causal;
  const auto inputs = [](const Tensor& all) {
    return AttentionInputs{all.select(2, 0), all.select(2, 1), all.select(2, 2), {}, {}};
  };
  const auto gradients = [&](const Tensor& all, const Tensor& g, const AttentionOutput& out) {
    const Tensor d_all = Tensor::empty(all.shape(), all.dtype(), all.device());
    attention_backward(g, inputs(all), out, options,
                       {d_all.select(2, 0), d_all.select(2, 1), d_all.select(2, 2), {}});
    return d_all;
  };
  const AttentionOutput expected = attention(inputs(packed), options);
  const Tensor there = to_device(cast(packed, DType::bf16), gpu::kCuda);
  const AttentionOutput got = attention(inputs(there), options);
  CHECK(got.y.dtype() == DType::bf16);
  CHECK(got.lse.dtype() == DType::f32);
  CHECK(distance(got.y, expected.y) < 0.03);
  CHECK(distance(got.lse, expected.lse) < 0.01);
  CHECK(distance(gradients(there, to_device(cast(dy, DType::bf16), gpu::kCuda), got),
                 gradients(packed, dy, expected)) < 0.1);
}

}  // namespace

TEST_CASE("cuDNN itself takes attention of bf16, causal or not") {
  if (!gpu::available()) return;
  cudnn::Attention p;
  p.n = 2, p.t = p.s = 128, p.heads = 2, p.d = 64;
  const Tensor packed = Tensor::zeros({p.n, p.t, 3, p.heads, p.d}, DType::bf16, gpu::kCuda);
  const Tensor y = Tensor::zeros({p.n, p.t, p.heads, p.d}, DType::bf16, gpu::kCuda);
  const Tensor lse = Tensor::zeros({p.n, p.heads, p.t}, DType::f32, gpu::kCuda);
  const auto part = [&](int64_t i) { return packed.select(2, i); };
  p.q = p.k = p.v = part(0).strides(), p.y = y.strides();
  for (const bool causal : {false, true}) {
    CAPTURE(causal);
    p.causal = causal;
    REQUIRE(cudnn::attend(p, {part(0).raw(), part(1).raw(), part(2).raw(), y.raw(), lse.raw()}));
  }
}

TEST_CASE("attention by cuDNN agrees with the CPU's") {
  if (!gpu::available()) return;
  for (const bool causal : {false, true}) {
    compare(2, 20, 2, 64, causal);
    compare(1, 33, 3, 64, causal);
  }
}

TEST_CASE("attention that cuDNN does not take, or at which it fails, is computed and counted") {
  if (!gpu::available() || !gpu::emulated()) return;  // the stand-in fails for 17 queries
  forget_fallbacks();
  compare(1, 17, 2, 64, false);
  compare(1, 17, 2, 64, false);
  compare(1, 20, 2, 32, false);
  const std::vector<LibraryFallback> found = library_fallbacks();
  REQUIRE(found.size() == 2);
  CHECK(found[0].count == 2);
  CHECK(found[0].what.find("q [1, 17, 2, 64] keys 17") != std::string::npos);
  CHECK(found[1].what.find("q [1, 20, 2, 32] keys 20") != std::string::npos);
  forget_fallbacks();
}

}  // namespace frugal::ops
