#include "ops/sequence/attention.h"

#include <doctest/doctest.h>

#include <array>

#include "core/memory.h"
#include "tests/ops/samples.h"

namespace frugal::ops {
namespace {

struct Sizes {
  int64_t n, t, s, heads, d;
};

AttentionInputs inputs_of(const Sizes& z, uint64_t seed = 1) {
  return {normals({z.n, z.t, z.heads, z.d}, seed),
          normals({z.n, z.s, z.heads, z.d}, seed + 1),
          normals({z.n, z.s, z.heads, z.d}, seed + 2),
          {},
          {}};
}

Tensor in_dtype(const Tensor& x, DType dtype) {
  return !x.defined() || x.dtype() == DType::i64 ? x : cast(x, dtype);
}
AttentionInputs in_dtype(const AttentionInputs& in, DType dtype) {
  return {in_dtype(in.q, dtype), in_dtype(in.k, dtype), in_dtype(in.v, dtype),
          in_dtype(in.mask, dtype), in_dtype(in.bias, dtype)};
}

int64_t peak_of(Category category) {
  return allocator(kCpu).report().peak[static_cast<size_t>(category)];
}

struct Everything {
  AttentionOutput out;
  AttentionGradients g;
};

Everything run(const AttentionInputs& in, const AttentionOptions& options,
               bool keep_output = true) {
  Everything all{attention(in, options), {}};
  const auto like = [](const Tensor& x) {
    return x.defined() ? Tensor::empty(x.shape(), x.dtype()) : x;
  };
  all.g = {like(in.q), like(in.k), like(in.v), like(in.bias)};
  const Tensor dy = normals(in.q.shape(), 9, in.q.dtype());
  attention_backward(dy, in, keep_output ? all.out : AttentionOutput{}, options, all.g);
  return all;
}

double distance(const Everything& a, const Everything& b) {
  double worst = 0;
  const auto compare = [&](const Tensor& x, const Tensor& y) {
    if (x.defined()) worst = std::max(worst, error(x, y.to_vector()));
  };
  compare(a.out.y, b.out.y);
  compare(a.out.lse, b.out.lse);
  compare(a.g.dq, b.g.dq);
  compare(a.g.dk, b.g.dk);
  compare(a.g.dv, b.g.dv);
  compare(a.g.dbias, b.g.dbias);
  return worst;
}

bool same(const Everything& a, const Everything& b) {
  return same_bits(a.out.y, b.out.y) && same_bits(a.out.lse, b.out.lse) &&
         same_bits(a.g.dq, b.g.dq) && same_bits(a.g.dk, b.g.dk) && same_bits(a.g.dv, b.g.dv) &&
         same_bits(a.g.dbias, b.g.dbias);
}

}  // namespace

TEST_CASE("attention: f64 follows the definition") {
  const AttentionInputs in = in_dtype(inputs_of({1, 2, 3, 1, 4}), DType::f64);
  const Tensor y = attention(in, {}).y;
  for (int64_t t = 0; t < 2; ++t) {
    double total = 0, weights[3];
    for (int64_t s = 0; s < 3; ++s) {
      double score = 0;
      for (int64_t k = 0; k < 4; ++k) score += in.q.item(t * 4 + k) * in.k.item(s * 4 + k) / 2;
      total += weights[s] = std::exp(score);
    }
    for (int64_t k = 0; k < 4; ++k) {
      double expected = 0;
      for (int64_t s = 0; s < 3; ++s) expected += weights[s] / total * in.v.item(s * 4 + k);
      CHECK(y.item(t * 4 + k) == doctest::Approx(expected));
    }
  }
}

TEST_CASE("attention: f32 and its gradients are f64's, for odd sizes, masks and dropout") {
  for (const Sizes& z :
       {Sizes{2, 1, 1, 1, 1}, Sizes{2, 7, 7, 3, 5}, Sizes{1, 65, 130, 2, 16},
        Sizes{1, 128, 128, 1, 64}, Sizes{1, 1, 300, 2, 8}, Sizes{1, 130, 3, 1, 33}})
    for (int form = 0; form < 6; ++form) {
      AttentionInputs in = inputs_of(z);
      AttentionOptions options;
      options.causal = form == 1;
      if (form == 2) {
        in.mask = Tensor::zeros({z.n, z.s}, DType::i64);
        for (int64_t i = 0; i < in.mask.numel(); ++i)
          in.mask.mut<int64_t>()[i] = i % 3 == 0 ? 0 : 1;
      }
      if (form == 3) in.mask = normals({z.heads, z.t, z.s}, 5);
      if (form == 4) in.bias = normals({z.heads, z.t, z.s}, 6), options.scale = 0.7;
      if (form == 5) options.dropout = 0.4, options.key = {5, 1}, options.causal = true;
      CAPTURE(form);
      CAPTURE(z.t);
      CAPTURE(z.s);
      const Everything fine = run(in_dtype(in, DType::f64), options), coarse = run(in, options);
      CHECK(distance(coarse, fine) < 2e-5);
      CHECK(distance(run(in, options, false), fine) < 2e-5);  // computed again
      const ThreadsScope threads(3);
      CHECK(same(run(in, options), coarse));
    }
}

TEST_CASE("attention: samples in one row get what each gets alone") {
  const std::vector<int64_t> lengths = {70, 1, 140, 3, 66};
  const int64_t all = 280, heads = 4, d = 16;
  for (const int64_t window : {0, 20})
    for (const DType dtype : {DType::f32, DType::f64}) {
      CAPTURE(window);
      AttentionInputs in{normals({2, all, heads, d}, 1, dtype),
                         normals({2, all, heads / 2, d}, 2, dtype),
                         normals({2, all, heads / 2, d}, 3, dtype),
                         Tensor::zeros({2, all, 1}, DType::i64),
                         {}};
      AttentionOptions options;
      options.causal = true;
      options.window = window;
      int64_t at = 0;
      for (int64_t n = 0; n < 2; ++n)
        for (const int64_t length : lengths)
          for (int64_t i = 0; i < length; ++i) in.mask.mut<int64_t>()[at++] = i;
      REQUIRE(at == 2 * all);
      const Tensor dy = normals(in.q.shape(), 9, dtype);
      const double tolerance = dtype == DType::f64 ? 1e-12 : 2e-5;
      for (const bool keep_output : {true, false}) {
        const Everything got = run(in, options, keep_output);
        int64_t begin = 0;
        for (const int64_t length : lengths) {
          CAPTURE(begin);
          const auto part = [&](const Tensor& x) {
            return contiguous(x.slice(1, begin, begin + length));
          };
          const AttentionInputs own{part(in.q), part(in.k), part(in.v), {}, {}};
          const AttentionOutput out = attention(own, options);
          const auto like = [](const Tensor& x) { return Tensor::empty(x.shape(), x.dtype()); };
          const AttentionGradients g{like(own.q), like(own.k), like(own.v), {}};
          attention_backward(part(dy), own, out, options, g);
          CHECK(error(part(got.out.y), out.y.to_vector()) < tolerance);
          CHECK(error(part(got.g.dq), g.dq.to_vector()) < tolerance);
          CHECK(error(part(got.g.dk), g.dk.to_vector()) < tolerance);
          CHECK(error(part(got.g.dv), g.dv.to_vector()) < tolerance);
          begin += length;
        }
      }
    }
}

TEST_CASE("attention: bf16 is computed in f32 and rounded once") {
  const AttentionInputs rounded = in_dtype(inputs_of({2, 20, 33, 2, 8}), DType::bf16);
  const Everything narrow = run(rounded, {}), wide = run(in_dtype(rounded, DType::f32), {});
  CHECK(narrow.out.lse.dtype() == DType::f32);
  CHECK(same_bits(narrow.out.lse, wide.out.lse));
  CHECK(same_bits(narrow.out.y, cast(wide.out.y, DType::bf16)));
  CHECK(error(narrow.g.dv, wide.g.dv.to_vector()) < 0.02);
  CHECK(error(narrow.g.dq, wide.g.dq.to_vector()) < 0.05);
  CHECK(error(narrow.g.dk, wide.g.dk.to_vector()) < 0.05);
}

TEST_CASE("attention: heads that are parts of one projection are read and written in place") {
  const int64_t n = 2, t = 9, heads = 2, d = 16;
  const Tensor qkv = normals({n, t, 3 * heads, d}, 1), dqkv = Tensor::full(qkv.shape(), 7);
  const auto part = [&](const Tensor& x, int64_t i) {
    return x.slice(2, i * heads, (i + 1) * heads);
  };
  const AttentionInputs views{part(qkv, 0), part(qkv, 1), part(qkv, 2), {}, {}};
  const AttentionInputs copies{
      contiguous(views.q), contiguous(views.k), contiguous(views.v), {}, {}};
  const Everything expected = run(copies, {});
  allocator(kCpu).reset_peak();
  const int64_t before = peak_of(Category::activation);
  const AttentionOutput out = attention(views, {});
  // The output and its sums: no copies of q, k, v.
  CHECK(peak_of(Category::activation) - before < out.y.nbytes() + out.lse.nbytes() + 128);
  CHECK(same_bits(out.y, expected.out.y));
  attention_backward(normals(out.y.shape(), 9), views, out, {},
                     {part(dqkv, 0), part(dqkv, 1), part(dqkv, 2), {}});
  CHECK(same_bits(part(dqkv, 0), expected.g.dq));
  CHECK(same_bits(part(dqkv, 1), expected.g.dk));
  CHECK(same_bits(part(dqkv, 2), expected.g.dv));
}

TEST_CASE("attention: a row that sees no key gives zeros and takes no gradient") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    AttentionInputs in = in_dtype(inputs_of({2, 5, 4, 1, 3}), dtype);
    in.mask = Tensor::full({2, 4}, 1, DType::i64);
    for (int64_t s = 0; s < 4; ++s) in.mask.mut<int64_t>()[4 + s] = 0;
    AttentionOptions causal;
    causal.causal = true;  // the first query of the first sequence comes before all keys
    for (const bool keep_output : {true, false}) {
      const Everything all = run(in, causal, keep_output);
      for (int64_t i = 0; i < all.out.y.numel(); ++i) {
        const bool hidden = i < 3 || i >= 15;
        CHECK((all.out.y.item(i) == 0) == hidden);
        if (hidden) CHECK(all.g.dq.item(i) == 0);
      }
      for (int64_t i = 12; i < 24; ++i) {
        CHECK(all.g.dk.item(i) == 0);
        CHECK(all.g.dv.item(i) == 0);
      }
      CHECK(all.out.lse.item(0) == kInf);
    }
  }
}

TEST_CASE("attention: large scores neither overflow nor vanish, NaN stays in its row") {
  AttentionInputs in = inputs_of({1, 4, 200, 1, 8});
  in.q = cast(normals(in.q.shape(), 3, DType::f64, 60), DType::f32);
  const AttentionOutput fine = attention(in_dtype(in, DType::f64), {}), out = attention(in, {});
  CHECK(error(out.y, fine.y.to_vector()) < 1e-4);
  in.q.mut<float>()[9] = std::numeric_limits<float>::quiet_NaN();
  const Tensor y = attention(in, {}).y;
  for (int64_t i = 0; i < 32; ++i) CHECK(std::isnan(y.item(i)) == (i / 8 == 1));
}

TEST_CASE("attention: a row whose keys all get the least float is a mean, in its gradient, too") {
  // The numbers that are added are equal, so they change no probability. Beside them, scores are
  // rounded away, and the logarithm of a sum of exponentials is, too: findings/torch_flash_mask.sh
  for (const float added : {-std::numeric_limits<float>::max(), -1e30f, 1e30f}) {
    CAPTURE(added);
    AttentionInputs in = inputs_of({2, 5, 300, 2, 8});
    AttentionInputs flat = in;
    in.mask = Tensor::full({1, 5, 300}, added);
    flat.q = Tensor::zeros(in.q.shape(), DType::f32);  // all scores are 0
    for (const DType dtype : {DType::f32, DType::f64})
      for (const bool keep_output : {true, false}) {
        const Everything expected = run(in_dtype(flat, dtype), {}, keep_output);
        const Everything all = run(in_dtype(in, dtype), {}, keep_output);
        const double bound = dtype == DType::f64 ? 1e-12 : 2e-5;
        CHECK(error(all.out.y, expected.out.y.to_vector()) < bound);
        CHECK(error(all.g.dq, expected.g.dq.to_vector()) < bound);
        CHECK(error(all.g.dv, expected.g.dv.to_vector()) < bound);
      }
  }
}

TEST_CASE("attention: the workspace does not grow with heads and sequences") {
  for (const bool keep_output : {true, false}) {
    const auto peak = [&](const Sizes& z) {
      const AttentionInputs in = inputs_of(z);
      const ThreadsScope threads(1);
      allocator(kCpu).reset_peak();
      run(in, {}, keep_output);
      return peak_of(Category::workspace);
    };
    const int64_t small = peak({1, 64, 64, 1, 16}), large = peak({3, 64, 64, 4, 16});
    CHECK(small > 0);
    CHECK(large <= small);
    CHECK(peak({1, 256, 256, 1, 16}) < 5 * small);
  }
}

TEST_CASE("attention_backward: what it refuses; meta") {
  const AttentionInputs in = inputs_of({1, 2, 3, 1, 4});
  const AttentionOutput out = attention(in, {});
  CHECK_THROWS_WITH_AS(attention_backward(normals({1, 2, 1, 3}, 1), in, out, {}, {}),
                       doctest::Contains("[attention_backward] expected dy of shape"), Error);
  CHECK_THROWS_WITH_AS(attention_backward(out.y, in, {out.y, normals({1, 1, 3}, 1)}, {}, {}),
                       doctest::Contains("[attention_backward] expected lse of shape [1, 1, 2]"),
                       Error);
  const Tensor q = Tensor::empty({2, 3, 4, 5}, DType::f32, kMeta);
  const AttentionOutput planned = attention({q, q, q, {}, {}}, {});
  CHECK(planned.y.shape() == Shape{2, 3, 4, 5});
  CHECK(planned.lse.shape() == Shape{2, 4, 3});
}

namespace {

// Each head `group` times, side by side.
Tensor repeated(const Tensor& x, int64_t group) {
  const int64_t n = x.size(0), t = x.size(1), heads = x.size(2), d = x.size(3);
  const Tensor out = Tensor::empty({n, t, heads * group, d}, x.dtype());
  for (int64_t head = 0; head < heads * group; ++head)
    copy_into(out.slice(2, head, head + 1), x.slice(2, head / group, head / group + 1));
  return out;
}

// The sum over each `group` of neighbouring heads.
std::vector<double> summed(const Tensor& x, int64_t group) {
  const int64_t heads = x.size(2) / group, d = x.size(3);
  std::vector<double> out(static_cast<size_t>(x.numel() / group), 0.0);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const int64_t head = i / d % x.size(2) / group, row = i / d / x.size(2);
    out[static_cast<size_t>((row * heads + head) * d + i % d)] += x.item(i);
  }
  return out;
}

}  // namespace

TEST_CASE("attention: heads of k and v that queries share are as repeated ones") {
  for (const bool keep_output : {true, false})
    for (const DType dtype : {DType::f64, DType::f32}) {
      AttentionInputs in = in_dtype(inputs_of({2, 70, 70, 6, 5}), dtype);
      const auto narrow = [&](const Tensor& x) { return contiguous(x.slice(2, 0, 2)); };
      in.k = narrow(in.k), in.v = narrow(in.v);
      in.bias = in_dtype(normals({6, 70, 70}, 8), dtype);
      AttentionInputs wide = in;
      wide.k = repeated(in.k, 3), wide.v = repeated(in.v, 3);
      AttentionOptions options;
      options.causal = true;
      options.dropout = 0.2;
      options.key = {3, 1};
      const Everything own = run(in, options, keep_output), all = run(wide, options, keep_output);
      const double bound = dtype == DType::f64 ? 1e-12 : 2e-5;
      CHECK(error(own.out.y, all.out.y.to_vector()) < bound);
      CHECK(error(own.g.dq, all.g.dq.to_vector()) < bound);
      CHECK(error(own.g.dbias, all.g.dbias.to_vector()) < bound);
      CHECK(error(own.g.dk, summed(all.g.dk, 3)) < bound);
      CHECK(error(own.g.dv, summed(all.g.dv, 3)) < bound);
      const ThreadsScope threads(3);
      CHECK(same(run(in, options, keep_output), own));
    }
}

TEST_CASE("attention: a window hides what an added mask hides") {
  for (const auto& [t, s, window] :
       {std::array<int64_t, 3>{5, 5, 1}, {7, 9, 3}, {150, 150, 40}, {3, 400, 130}, {9, 6, 4}}) {
    const auto& this_t = t;
    CAPTURE(this_t);
    AttentionInputs in = inputs_of({1, t, s, 2, 4});
    AttentionOptions options;
    options.causal = true;
    options.window = window;
    const Tensor mask = Tensor::zeros({1, t, s}, DType::f64);
    for (int64_t i = 0; i < t; ++i)
      for (int64_t j = 0; j < s; ++j)
        if (i + s - t - j >= window) mask.mut<double>()[i * s + j] = -kInf;
    AttentionInputs masked = in_dtype(in, DType::f64);
    masked.mask = mask;
    AttentionOptions causal;
    causal.causal = true;
    const Everything expected = run(masked, causal);
    CHECK(distance(run(in_dtype(in, DType::f64), options), expected) < 1e-12);
    for (const bool keep_output : {true, false})
      CHECK(distance(run(in, options, keep_output), expected) < 2e-5);
  }
}

TEST_CASE("attention: a soft cap bends scores before the masks") {
  AttentionInputs in = in_dtype(inputs_of({1, 2, 3, 1, 2}), DType::f64);
  AttentionOptions options;
  options.soft_cap = 0.3;
  const Tensor y = attention(in, options).y;
  for (int64_t t = 0; t < 2; ++t) {
    double total = 0, weights[3];
    for (int64_t s = 0; s < 3; ++s) {
      double score = 0;
      for (int64_t k = 0; k < 2; ++k)
        score += in.q.item(t * 2 + k) * in.k.item(s * 2 + k) / std::numbers::sqrt2;
      total += weights[s] = std::exp(0.3 * std::tanh(score / 0.3));
    }
    for (int64_t k = 0; k < 2; ++k) {
      double expected = 0;
      for (int64_t s = 0; s < 3; ++s) expected += weights[s] / total * in.v.item(s * 2 + k);
      CHECK(y.item(t * 2 + k) == doctest::Approx(expected));
    }
  }
  AttentionInputs large = inputs_of({2, 130, 200, 2, 9});
  large.mask = Tensor::full({2, 200}, 1, DType::i64);
  for (int64_t s = 100; s < 200; ++s) large.mask.mut<int64_t>()[s] = 0;
  options.soft_cap = 0.8;
  options.causal = true;
  options.window = 60;
  options.dropout = 0.3;
  options.key = {4, 2};
  const Everything fine = run(in_dtype(large, DType::f64), options);
  for (const bool keep_output : {true, false})
    CHECK(distance(run(large, options, keep_output), fine) < 2e-5);
}

}  // namespace frugal::ops
