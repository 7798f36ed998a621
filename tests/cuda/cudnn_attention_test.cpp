// Attention of bf16 that cuDNN's fused engines take: packed q, k and v, causal or not, with hidden
// keys or without, and a backward pass from what they kept or computed again.
#include "ops/cuda/cudnn_attention.h"

#include <map>

#include "ops/library_fallbacks.h"
#include "ops/precision.h"
#include "ops/sequence/attention.h"
#include "tests/cuda/compare.h"
#include "tests/ops/samples.h"

namespace frugal::ops {
namespace {

using gpu::distance, gpu::rounded;

// keep: undefined, or [n, t] i64.
void check_packed_attention(int64_t n, int64_t t, int64_t heads, int64_t d, bool causal,
                            const Tensor& keep = {}) {
  CAPTURE(n);
  CAPTURE(t);
  CAPTURE(causal);
  CAPTURE(keep.defined());
  const Tensor packed = rounded({n, t, 3, heads, d}, 1), dy = rounded({n, t, heads, d}, 2);
  AttentionOptions options;
  options.causal = causal;
  const auto inputs = [&](const Tensor& all) {
    const Tensor mask = keep.defined() ? to_device(keep, all.device()) : keep;
    return AttentionInputs{all.select(2, 0), all.select(2, 1), all.select(2, 2), mask, {}};
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
  const std::vector<double> lse = got.lse.to_vector(), wanted = expected.lse.to_vector();
  for (size_t i = 0; i < lse.size(); ++i)
    CHECK((lse[i] == wanted[i] || std::abs(lse[i] - wanted[i]) < 0.01));  // infinity, too
  const Tensor g = to_device(cast(dy, DType::bf16), gpu::kCuda);
  const Tensor wanted_gradients = gradients(packed, dy, expected);
  CHECK(distance(gradients(there, g, got), wanted_gradients) < 0.1);
  CHECK(distance(gradients(there, g, {}), wanted_gradients) < 0.1);  // y and lse computed again
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
  const Tensor hidden = Tensor::zeros({p.n, p.t, p.t}, DType::f32, gpu::kCuda);
  const Tensor sums = Tensor::zeros({p.n, p.heads, p.t, p.d}, DType::f32, gpu::kCuda);
  const Tensor to = Tensor::zeros(packed.shape(), DType::bf16, gpu::kCuda);
  p.q = p.k = p.v = part(0).strides(), p.y = p.dy = y.strides();
  p.dq = p.dk = p.dv = to.select(2, 0).strides();
  for (const bool causal : {false, true})
    for (const bool hides : {false, true})
      for (const bool ordered : {true, false}) {
        CAPTURE(causal);
        CAPTURE(hides);
        CAPTURE(ordered);
        p.causal = causal, p.hides = hides;
        const cudnn::AttentionData data{part(0).raw(), part(1).raw(), part(2).raw(),
                                        y.raw(),       lse.raw(),     hidden.raw()};
        REQUIRE(cudnn::attend(p, data));
        set_deterministic(ordered);
        CHECK(
            cudnn::attend_backward(p, {data, y.raw(), lse.raw(), sums.raw(), to.select(2, 0).raw(),
                                       to.select(2, 1).raw(), to.select(2, 2).raw()}));
        set_deterministic(true);
      }
}

TEST_CASE("attention by cuDNN agrees with the CPU's") {
  if (!gpu::available()) return;
  // Key 0 of sample 1 is hidden, so with a causal mask query 0 sees nothing. Sample 2 sees nothing.
  const Tensor keep = Tensor::ones({3, 64}, DType::i64);
  for (int64_t s = 0; s < 64; ++s) keep.mut<int64_t>()[64 + s] = s < 53 && s % 4 != 0;
  for (int64_t s = 0; s < 64; ++s) keep.mut<int64_t>()[128 + s] = 0;
  forget_fallbacks();
  for (const bool ordered : {true, false}) {
    set_deterministic(ordered);
    for (const bool causal : {false, true}) {
      check_packed_attention(2, 64, 2, 64, causal);
      check_packed_attention(1, 128, 2, 64, causal);
      check_packed_attention(3, 64, 2, 64, causal, keep);
    }
  }
  set_deterministic(true);
  CHECK(library_fallbacks().empty());
}

TEST_CASE("attention of bf16 agrees with the CPU's at all lengths") {
  if (!gpu::available()) return;
  const std::vector<int64_t> all{1, 3, 8, 16, 20, 31, 32, 33, 48, 63, 64, 65, 100, 128, 130},
      few{1, 20, 65};  // the emulator takes seconds for each
  for (const int64_t t : gpu::emulated() ? few : all)
    for (int64_t n = 1; n <= (gpu::emulated() ? 1 : 3); ++n) {
      const Tensor hides = Tensor::ones({n, t}, DType::i64);
      for (int64_t i = 0; i < n * t; ++i) hides.mut<int64_t>()[i] = i % t == 0 || i % 3 != 0;
      for (const bool causal : {false, true}) {
        check_packed_attention(n, t, 2, 64, causal);
        check_packed_attention(n, t, 2, 64, causal, Tensor::ones({n, t}, DType::i64));
        check_packed_attention(n, t, 2, 64, causal, hides);
      }
    }
}

TEST_CASE("a backward pass in order that would keep much is not given to cuDNN") {
  if (!gpu::available()) return;
  forget_fallbacks();
  const int64_t before = convolution_workspace();
  set_convolution_workspace(2 * 2 * 64 * 64 * 2);
  check_packed_attention(2, 64, 2, 64, false);
  CHECK(library_fallbacks().empty());
  set_convolution_workspace(2 * 2 * 64 * 64 * 2 - 1);
  check_packed_attention(2, 64, 2, 64, false);
  CHECK(library_fallbacks().size() == 1);
  set_convolution_workspace(before);
  forget_fallbacks();
}

TEST_CASE("attention that cuDNN does not take, or at which it fails, is computed and counted") {
  if (!gpu::available() || !gpu::emulated()) return;  // the stand-in fails for 4 heads
  forget_fallbacks();
  check_packed_attention(1, 64, 4, 64, false);
  check_packed_attention(1, 64, 4, 64, false);
  check_packed_attention(1, 64, 2, 32, false);
  check_packed_attention(1, 64, 3, 64, false);  // the backward pass alone is not taken
  // The backward pass is not asked for: cuDNN's tiles would not be whole.
  check_packed_attention(1, 20, 2, 64, false);
  std::map<std::string, int64_t> found;
  for (const LibraryFallback& one : library_fallbacks()) found[one.what] = one.count;
  const std::string none = "cuDNN has no plan for attention ", q = "bf16 q [1, ";
  CHECK(found ==
        std::map<std::string, int64_t>{{none + q + "64, 4, 64] keys 64", 2},
                                       {none + q + "64, 2, 32] keys 64", 1},
                                       {none + "backward " + q + "64, 4, 64] keys 64", 4},
                                       {none + "backward " + q + "64, 2, 32] keys 64", 2},
                                       {none + "backward " + q + "64, 3, 64] keys 64", 2}});
  forget_fallbacks();
}

}  // namespace frugal::ops
