#include "ops/elementwise_loops.h"

// See simd_loops.cpp.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise_loops.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

// Plain loops over the functors: the compiler vectorises them for the target of each pass.
HWY_BEFORE_NAMESPACE();
namespace frugal::ops::simd {
namespace HWY_NAMESPACE {

template <class F>
HWY_ATTR void BinaryRows(F f, const float* a, const float* b, float* y, const Operands& o) {
  for (int64_t row = 0; row < o.rows; ++row) {
    const float* HWY_RESTRICT pa = a + row * o.a_row;
    const float* HWY_RESTRICT pb = b + row * o.b_row;
    float* HWY_RESTRICT py = y + row * o.cols;
    if (o.a_col == 1 && o.b_col == 1) {
      for (int64_t i = 0; i < o.cols; ++i) py[i] = f(pa[i], pb[i]);
    } else if (o.a_col == 1 && o.b_col == 0) {
      const float vb = *pb;
      for (int64_t i = 0; i < o.cols; ++i) py[i] = f(pa[i], vb);
    } else if (o.a_col == 0 && o.b_col == 1) {
      const float va = *pa;
      for (int64_t i = 0; i < o.cols; ++i) py[i] = f(va, pb[i]);
    } else {
      for (int64_t i = 0; i < o.cols; ++i) py[i] = f(pa[i * o.a_col], pb[i * o.b_col]);
    }
  }
}

template <class F>
HWY_ATTR void Map(F f, const float* HWY_RESTRICT x, float* HWY_RESTRICT y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = f.f(x[i]);
}

template <class F>
HWY_ATTR void MapBackward(F f, const float* HWY_RESTRICT dy, const float* HWY_RESTRICT saved,
                          float* HWY_RESTRICT dx, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dx[i] = f.df(dy[i], saved[i]);
}

template <class F>
HWY_ATTR void MapEstimate(F f, const float* HWY_RESTRICT x, const float* HWY_RESTRICT variance,
                          float* HWY_RESTRICT y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = estimate(f, x[i], variance[i]);
}

template <class F>
HWY_ATTR void MapBackwardEstimate(F f, const float* HWY_RESTRICT dy, const float* HWY_RESTRICT x,
                                  const float* HWY_RESTRICT variance, float* HWY_RESTRICT dx,
                                  int64_t n) {
  for (int64_t i = 0; i < n; ++i) dx[i] = backward_estimate(f, dy[i], x[i], variance[i]);
}

void BinaryOp(Binary op, const float* a, const float* b, float* y, const Operands& layout) {
  with_binary(op, [&](auto f) HWY_ATTR { BinaryRows(f, a, b, y, layout); });
}

void UnaryOp(Unary op, const float* x, float* y, int64_t n) {
  with_unary(op, [&](auto f) HWY_ATTR { Map(f, x, y, n); });
}

void UnaryBackward(Unary op, const float* dy, const float* saved, float* dx, int64_t n) {
  with_unary(op, [&](auto f) HWY_ATTR {
    if constexpr (requires { f.df(0.0f, 0.0f); }) MapBackward(f, dy, saved, dx, n);
  });
}

void UnaryEstimate(Unary op, const float* x, const float* variance, float* y, int64_t n) {
  with_unary(op, [&](auto f) HWY_ATTR {
    if constexpr (is_smooth<decltype(f)>) MapEstimate(f, x, variance, y, n);
  });
}

void UnaryBackwardEstimate(Unary op, const float* dy, const float* x, const float* variance,
                           float* dx, int64_t n) {
  with_unary(op, [&](auto f) HWY_ATTR {
    if constexpr (is_smooth<decltype(f)>) MapBackwardEstimate(f, dy, x, variance, dx, n);
  });
}

void Affine(const float* HWY_RESTRICT x, float factor, float term, float* HWY_RESTRICT y,
            int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor + term;
}

constexpr int kStreams = 16;  // counters that a vector of the widest target takes

// philox(key, first + lane) of core/rng.h for 16 counters at once: word w of counter k at
// words[w][k].
HWY_ATTR void PhiloxWords(RngKey key, uint64_t first, uint32_t (&words)[4][kStreams]) {
  for (int k = 0; k < kStreams; ++k) {
    const uint64_t counter = first + static_cast<uint64_t>(k);
    words[0][k] = static_cast<uint32_t>(counter);
    words[1][k] = static_cast<uint32_t>(counter >> 32);
    words[2][k] = static_cast<uint32_t>(key.offset);
    words[3][k] = static_cast<uint32_t>(key.offset >> 32);
  }
  auto k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int k = 0; k < kStreams; ++k) {
      const uint64_t a = uint64_t{0xD2511F53u} * words[0][k],
                     b = uint64_t{0xCD9E8D57u} * words[2][k];
      words[0][k] = static_cast<uint32_t>(b >> 32) ^ words[1][k] ^ k0;
      words[1][k] = static_cast<uint32_t>(b);
      words[2][k] = static_cast<uint32_t>(a >> 32) ^ words[3][k] ^ k1;
      words[3][k] = static_cast<uint32_t>(a);
    }
    k0 += 0x9E3779B9u;  // the Weyl sequence of the key
    k1 += 0xBB67AE85u;
  }
}

void Dropout(const float* HWY_RESTRICT x, RngKey key, uint32_t bound, float scale,
             float* HWY_RESTRICT y, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i += 4 * kStreams) {
    uint32_t words[4][kStreams];
    PhiloxWords(key, static_cast<uint64_t>(i / 4), words);
    float factors[4 * kStreams];
    for (int k = 0; k < kStreams; ++k)
      for (int w = 0; w < 4; ++w)
        factors[4 * k + w] = math::choose(words[w][k] >> 8 >= bound, scale, 0.0f);
    const int64_t n = end - i < 4 * kStreams ? end - i : 4 * kStreams;
    const float* HWY_RESTRICT px = x + (i - begin);
    float* HWY_RESTRICT py = y + (i - begin);
    // A dropped infinity or NaN gives 0.
    for (int64_t k = 0; k < n; ++k) py[k] = math::choose(factors[k] != 0, px[k] * factors[k], 0.0f);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::ops::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::ops::simd {

HWY_EXPORT(BinaryOp);
HWY_EXPORT(UnaryOp);
HWY_EXPORT(UnaryBackward);
HWY_EXPORT(UnaryEstimate);
HWY_EXPORT(UnaryBackwardEstimate);
HWY_EXPORT(Affine);
HWY_EXPORT(Dropout);

void binary(Binary op, const float* a, const float* b, float* y, const Operands& layout) {
  HWY_DYNAMIC_DISPATCH(BinaryOp)(op, a, b, y, layout);
}
void unary(Unary op, const float* x, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(UnaryOp)(op, x, y, n);
}
void unary_backward(Unary op, const float* dy, const float* saved, float* dx, int64_t n) {
  HWY_DYNAMIC_DISPATCH(UnaryBackward)(op, dy, saved, dx, n);
}
void unary_estimate(Unary op, const float* x, const float* variance, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(UnaryEstimate)(op, x, variance, y, n);
}
void unary_backward_estimate(Unary op, const float* dy, const float* x, const float* variance,
                             float* dx, int64_t n) {
  HWY_DYNAMIC_DISPATCH(UnaryBackwardEstimate)(op, dy, x, variance, dx, n);
}
void affine(const float* x, float factor, float term, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Affine)(x, factor, term, y, n);
}
void dropout(const float* x, RngKey key, uint32_t bound, float scale, float* y, int64_t begin,
             int64_t end) {
  HWY_DYNAMIC_DISPATCH(Dropout)(x, key, bound, scale, y, begin, end);
}

}  // namespace frugal::ops::simd
#endif
