// Attention on CUDA beside the CPU's, where the op table does not reach: several tiles, heads that
// fill none, rows that see nothing, biases of many sequences.
#include "ops/sequence/attention.h"

#include "ops/precision.h"
#include "tests/cuda/compare.h"
#include "tests/ops/samples.h"

namespace frugal::ops {
namespace {

using gpu::rounded, gpu::there;

struct Sizes {
  int64_t n, t, s, heads, d;
  int64_t group = 1;  // heads of q that share one of k and v
};
enum class Mask { none, keep, joined, added, least };

constexpr double kLeast = -0x1.fep127;  // the least finite number of bf16

AttentionInputs inputs_of(const Sizes& z, Mask mask, bool bias) {
  AttentionInputs in{rounded({z.n, z.t, z.heads, z.d}, 1),
                     rounded({z.n, z.s, z.heads / z.group, z.d}, 2),
                     rounded({z.n, z.s, z.heads / z.group, z.d}, 3),
                     {},
                     {}};
  if (mask == Mask::keep) {  // the last sequence sees nothing, the others not the first keys
    in.mask = Tensor::zeros({z.n, z.s}, DType::i64);
    for (int64_t i = z.s / 3; i < (z.n - 1) * z.s; ++i)
      in.mask.mut<int64_t>()[i] = i % z.s >= z.s / 3 ? 1 : 0;
  }
  if (mask == Mask::joined) {  // samples of up to 90 tokens share rows
    in.mask = Tensor::zeros({z.n, z.t, 1}, DType::i64);
    for (int64_t i = 0; i < in.mask.numel(); ++i)
      in.mask.mut<int64_t>()[i] = (i % z.t + 11 * (i / z.t)) % 90;
  }
  if (mask == Mask::added) in.mask = rounded({z.n, 1, z.t, z.s}, 4);
  if (mask == Mask::least) {  // added to all keys of every third query, and to two thirds of others
    in.mask = Tensor::zeros({z.n, 1, z.t, z.s}, DType::f32);
    for (int64_t i = 0; i < in.mask.numel(); ++i)
      if (i / z.s % 3 == 0 || i % 3 != 0) in.mask.mut<float>()[i] = static_cast<float>(kLeast);
  }
  if (bias) in.bias = rounded({z.heads, z.t, z.s}, 5);
  return in;
}

struct Everything {
  AttentionOutput out;
  AttentionGradients g;
};

Everything run_attention(const AttentionInputs& in, const Tensor& dy,
                         const AttentionOptions& options, bool keep_output) {
  Everything all{attention(in, options), {}};
  const auto like = [](const Tensor& x) {
    return x.defined() ? Tensor::empty(x.shape(), x.dtype(), x.device()) : x;
  };
  all.g = {like(in.q), like(in.k), like(in.v), like(in.bias)};
  attention_backward(dy, in, keep_output ? all.out : AttentionOutput{}, options, all.g);
  return all;
}

void check_attention(const Sizes& z, DType dtype, Mask mask = Mask::none,
                     const AttentionOptions& options = {}, bool bias = false,
                     bool keep_output = true, double tolerance = 2e-5) {
  CAPTURE(z.t);
  CAPTURE(z.s);
  CAPTURE(z.d);
  CAPTURE(name_of(dtype));
  const AttentionInputs in = inputs_of(z, mask, bias);
  const Tensor dy = rounded(in.q.shape(), 6);
  const Everything expected = run_attention(in, dy, options, keep_output);
  const AttentionInputs on_gpu{there(in.q, dtype), there(in.k, dtype), there(in.v, dtype),
                               there(in.mask, dtype), there(in.bias, DType::f32)};
  const Everything got = run_attention(on_gpu, there(dy, dtype), options, keep_output);
  if (dtype == DType::bf16) tolerance = 0.03;
  const auto near = [&](const Tensor& x, const Tensor& y) {
    if (x.defined()) CHECK(error(x, y.to_vector()) < tolerance);
  };
  near(got.out.y, expected.out.y);
  near(got.out.lse, expected.out.lse);
  near(got.g.dq, expected.g.dq);
  near(got.g.dk, expected.g.dk);
  near(got.g.dv, expected.g.dv);
  near(got.g.dbias, expected.g.dbias);
}

AttentionOptions with(bool causal, double dropout) {
  AttentionOptions options;
  options.causal = causal;
  options.dropout = dropout;
  options.key = {11, 5};
  return options;
}

}  // namespace

TEST_CASE("attention on CUDA: several tiles, every head size") {
  if (!gpu::available()) return;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    check_attention({1, 70, 133, 2, 20}, dtype);
    check_attention({1, 130, 66, 1, 64}, dtype, Mask::none, with(true, 0));
    check_attention({1, 66, 130, 1, 40}, dtype, Mask::none, with(true, 0.3));
    check_attention({2, 33, 70, 1, 128}, dtype, Mask::added, with(false, 0.2));
    check_attention({1, 65, 65, 1, 100}, dtype, Mask::none, with(true, 0), false, false);
    check_attention({1, 66, 35, 1, 256}, dtype, Mask::none, with(true, 0.2));
    check_attention({2, 18, 70, 1, 136}, dtype, Mask::keep, {}, true, false);
  }
}

TEST_CASE("attention on CUDA: all gradients at once, blocks that share a head or take it alone") {
  if (!gpu::available()) return;
  // Tiles of keys, and parts of them: 5 in 5, 4 in 2, 4 in 1.
  for (const Sizes& z :
       {Sizes{1, 70, 290, 2, 20}, Sizes{8, 21, 200, 16, 8}, Sizes{16, 9, 200, 16, 4}}) {
    check_attention(z, DType::f32);
    check_attention(z, DType::f32, Mask::none, with(true, 0.2));
  }
  check_attention({2, 70, 70, 2, 128}, DType::f32, Mask::added, with(true, 0.1), true, false);

  const AttentionInputs in = inputs_of({1, 70, 290, 2, 20}, Mask::none, false);
  const AttentionInputs here{
      there(in.q, DType::f32), there(in.k, DType::f32), there(in.v, DType::f32), {}, {}};
  const Tensor dy = there(rounded(in.q.shape(), 6), DType::f32);
  const AttentionOutput out = attention(here, {});
  const auto like = [](const Tensor& x) { return Tensor::empty(x.shape(), x.dtype(), x.device()); };
  const auto run_for = [&](bool dq, bool dk, bool dv) {
    AttentionGradients g{dq ? like(here.q) : Tensor(),
                         dk ? like(here.k) : Tensor(),
                         dv ? like(here.v) : Tensor(),
                         {}};
    attention_backward(dy, here, out, {}, g);
    return g;
  };
  const AttentionGradients all = run_for(true, true, true), again = run_for(true, true, true);
  CHECK(all.dq.to_vector() == again.dq.to_vector());
  // Fewer are made by kernels apart.
  const Tensor dq = run_for(true, false, false).dq;
  CHECK(error(all.dq, dq.to_vector()) < 2e-5);
  CHECK(error(all.dk, run_for(false, true, false).dk.to_vector()) < 2e-5);
  CHECK(error(all.dv, run_for(false, false, true).dv.to_vector()) < 2e-5);
  // Blocks that share a head have a dq of their own each, and a block that is alone needs none.
  const auto taken_for = [&](const Sizes& z) {
    const AttentionInputs few = inputs_of(z, Mask::none, false);
    const AttentionInputs on_gpu{
        there(few.q, DType::f32), there(few.k, DType::f32), there(few.v, DType::f32), {}, {}};
    const AttentionOutput known = attention(on_gpu, {});
    const AttentionGradients g{like(on_gpu.q), like(on_gpu.k), like(on_gpu.v), {}};
    Allocator& memory = allocator(gpu::kCuda);
    memory.reset_peak();
    const int64_t before = memory.report().peak_total;
    attention_backward(on_gpu.q, on_gpu, known, {}, g);
    return memory.report().peak_total - before;
  };
  CHECK(taken_for({16, 9, 200, 16, 4}) == 2 * 16 * 9 * 16 * 4);  // delta and rest
  CHECK(taken_for({1, 64, 320, 2, 16}) == 2 * 64 * 2 * 4 + 5 * 64 * 2 * 16 * 4);
}

TEST_CASE("attention on CUDA: shared heads of k and v, windows, samples in one row, soft caps") {
  if (!gpu::available()) return;
  const auto narrow = [](int64_t window, double cap, double dropout = 0) {
    AttentionOptions options = with(true, dropout);
    options.window = window;
    options.soft_cap = cap;
    return options;
  };
  const auto all = [&](DType dtype, double tolerance) {
    for (const bool keep_output : {true, false}) {
      check_attention({2, 70, 133, 6, 20, 3}, dtype, Mask::keep, with(false, 0.2), true,
                      keep_output, tolerance);
      check_attention({1, 200, 200, 2, 64, 2}, dtype, Mask::none, narrow(70, 0), false, keep_output,
                      tolerance);
      check_attention({1, 66, 290, 2, 32, 2}, dtype, Mask::none, narrow(5, 0.7, 0.2), false,
                      keep_output, tolerance);
      check_attention({2, 65, 70, 2, 100}, dtype, Mask::keep, narrow(0, 1.5), false, keep_output,
                      tolerance);
      check_attention({1, 200, 200, 4, 32, 2}, dtype, Mask::joined, narrow(0, 0), false,
                      keep_output, tolerance);
      check_attention({2, 130, 140, 2, 64, 2}, dtype, Mask::joined, narrow(33, 0.7, 0.2), false,
                      keep_output, tolerance);
    }
    check_attention({1, 70, 70, 2, 256, 2}, dtype, Mask::none, narrow(33, 2), false, true,
                    tolerance);
    check_attention({1, 9, 5, 4, 16, 4}, dtype, Mask::none, narrow(3, 0), false, true, tolerance);
  };
  all(DType::f32, 2e-5);
  all(DType::bf16, 0);
  const gpu::RoundingScope tf32(true);
  all(DType::f32, 2e-3);
}

TEST_CASE("attention on CUDA: f32 by tensor cores") {
  if (!gpu::available()) return;
  {
    const gpu::RoundingScope tf32(true);
    const double tolerance = 2e-3;
    for (const int64_t d : {20, 64, 100})
      for (const bool causal : {false, true})
        check_attention({2, 70, 133, 2, d}, DType::f32, Mask::none, with(causal, 0.2), false, true,
                        tolerance);
    check_attention({1, 130, 66, 1, 64}, DType::f32, Mask::none, with(true, 0), false, false,
                    tolerance);
    check_attention({2, 33, 70, 1, 128}, DType::f32, Mask::added, with(false, 0.2), true, true,
                    tolerance);
    check_attention({2, 18, 70, 1, 48}, DType::f32, Mask::keep, {}, true, false, tolerance);
    check_attention({1, 66, 35, 1, 256}, DType::f32);  // as it is
  }
  // 1 + 2^-12 is 1 to tensor cores.
  const Tensor one = there(Tensor::full({1, 1, 1, 8}, 1), DType::f32),
               more = there(Tensor::full({1, 1, 1, 8}, 1 + 0x1p-12), DType::f32);
  const auto lse = [&](const Tensor& q) { return attention({q, one, one, {}, {}}, {}).lse.item(); };
  CHECK(lse(one) != lse(more));
  const gpu::RoundingScope tf32(true);
  CHECK(lse(one) == lse(more));
}

TEST_CASE("attention on CUDA: rows that see no key give zeros") {
  if (!gpu::available()) return;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool keep_output : {true, false}) {
      check_attention({3, 5, 67, 2, 16}, dtype, Mask::keep, with(false, 0.25), true, keep_output);
      check_attention({1, 70, 3, 1, 8}, dtype, Mask::none, with(true, 0), false, keep_output);
    }
}

TEST_CASE(
    "attention on CUDA: a row whose keys all get the least float is a mean, in its gradient") {
  if (!gpu::available()) return;
  const auto windowed = [] {
    AttentionOptions options = with(true, 0);
    options.window = 20;
    return options;
  };
  const auto all = [&](DType dtype, double tolerance) {
    for (const bool keep_output : {true, false}) {
      CAPTURE(keep_output);
      check_attention({2, 9, 70, 2, 20}, dtype, Mask::least, {}, false, keep_output, tolerance);
      check_attention({1, 70, 133, 4, 64, 2}, dtype, Mask::least, with(true, 0.2), false,
                      keep_output, tolerance);
      check_attention({1, 70, 70, 1, 32}, dtype, Mask::least, windowed(), false, keep_output,
                      tolerance);
    }
    check_attention({1, 9, 70, 2, 128}, dtype, Mask::least, {}, true, true,
                    tolerance);  // two kernels
    check_attention({1, 18, 40, 1, 256}, dtype, Mask::least, with(true, 0), false, true, tolerance);
  };
  all(DType::f32, 2e-5);
  all(DType::bf16, 0);
  const gpu::RoundingScope tf32(true);
  all(DType::f32, 2e-3);
}

TEST_CASE("attention on CUDA: the gradient of a bias adds sequences in order") {
  if (!gpu::available()) return;
  check_attention({5, 3, 2, 205, 4}, DType::f32, Mask::none, {}, true);  // parts of two sequences
  check_attention({3, 49, 49, 2, 32}, DType::bf16, Mask::added, {}, true);
}

TEST_CASE("attention on CUDA: parts of one projection are read and written in place") {
  if (!gpu::available()) return;
  const Tensor qkv = rounded({2, 9, 6, 8}, 7), dy = rounded({2, 9, 2, 8}, 8);
  const auto gradient = [&](const Tensor& x, const Tensor& g) {
    const auto part = [](const Tensor& y, int64_t i) { return y.slice(2, 2 * i, 2 * i + 2); };
    const AttentionInputs in{part(x, 0), part(x, 1), part(x, 2), {}, {}};
    const Tensor dx = Tensor::empty(x.shape(), x.dtype(), x.device());
    attention_backward(g, in, attention(in, {}), {}, {part(dx, 0), part(dx, 1), part(dx, 2), {}});
    return dx;
  };
  const std::vector<double> expected = gradient(qkv, dy).to_vector();
  for (const DType dtype : {DType::f32, DType::bf16})
    CHECK(error(gradient(there(qkv, dtype), there(dy, dtype)), expected) <
          (dtype == DType::f32 ? 1e-5 : 0.03));
}

TEST_CASE("attention on CUDA: what it refuses") {
  if (!gpu::available()) return;
  const Tensor wide = there(normals({1, 2, 1, 264}, 1), DType::f32);
  CHECK_THROWS_WITH_AS(attention({wide, wide, wide, {}, {}}, {}),
                       doctest::Contains("[attention] expected heads of at most 256 channels"),
                       Error);
  const Tensor precise = to_device(normals({1, 2, 1, 8}, 1, DType::f64), gpu::kCuda);
  CHECK_THROWS_WITH_AS(attention({precise, precise, precise, {}, {}}, {}),
                       doctest::Contains("[attention] expected q of dtype"), Error);
}

}  // namespace frugal::ops
