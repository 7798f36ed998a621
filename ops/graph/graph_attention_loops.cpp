#include "ops/graph/graph_attention_loops.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "core/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/graph/graph_attention_loops.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "ops/simd/scalar_math.h"

// The loops over heads are plain: the compiler vectorises them for the target of each pass.
HWY_BEFORE_NAMESPACE();
namespace frugal::ops::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using View = GraphAttention<float>;

// Calls f(integral_constant n). n is the number of heads if loops over so many heads deserve code
// of their own, else 0.
template <class F>
HWY_INLINE void with_heads(int64_t heads, F f) {
  if (heads == 1) return f(std::integral_constant<int, 1>{});
  if (heads == 4) return f(std::integral_constant<int, 4>{});
  if (heads == 8) return f(std::integral_constant<int, 8>{});
  f(std::integral_constant<int, 0>{});
}
template <int kHeads, class T>
HWY_INLINE int64_t heads_of(const GraphAttention<T>& a) {
  return kHeads > 0 ? kHeads : a.heads;
}

// logits [heads] of the edge source -> target.
template <int kHeads, class T>
HWY_INLINE void logits(const GraphAttention<T>& a, int64_t source, int64_t target, T* out) {
  const int64_t heads = heads_of<kHeads>(a);
  const T* from = a.a_src + source * heads;
  const T* to = a.a_dst + target * heads;
  for (int64_t k = 0; k < heads; ++k) {
    const T z = from[k] + to[k];
    out[k] = z > 0 ? z : z * a.slope;
  }
}

// z [heads]: the logits; p: the coefficients before dropout; c: after it.
template <int kHeads, class T>
HWY_INLINE void coefficients(const GraphAttention<T>& a, int64_t source, int64_t target,
                             int64_t entry, T* z, T* p, T* c) {
  const int64_t heads = heads_of<kHeads>(a);
  logits<kHeads>(a, source, target, z);
  const T* lse = a.lse + target * heads;
  for (int64_t k = 0; k < heads; ++k) p[k] = math::exp(z[k] - lse[k]);
  std::copy_n(p, heads, c);
  if (!a.drops) return;
  std::array<uint32_t, 4> words{};
  for (int64_t k = 0; k < heads; ++k) {
    const auto index = static_cast<uint64_t>(entry * heads + k);
    if (k == 0 || index % 4 == 0) words = philox(a.key, index / 4);
    c[k] = words[index % 4] >> 8 >= a.bound ? c[k] * a.scale : T{0};
  }
}

// Sums of products, and similar loops, in plain C++. Vector code has its own version.
struct Plain {
  template <class T>
  static HWY_INLINE T dot(const T* x, const T* y, int64_t n) {
    T sum{0};
    for (int64_t f = 0; f < n; ++f) sum += x[f] * y[f];
    return sum;
  }
  template <class T>
  static HWY_INLINE void add_scaled(T factor, const T* x, T* y, int64_t n) {
    for (int64_t f = 0; f < n; ++f) y[f] += factor * x[f];
  }
  template <class T>
  static HWY_INLINE void fetch(const T*, int64_t) {}
};
constexpr int64_t kAhead = 2;  // rows are prefetched for so many entries ahead

template <int kHeads, class T>
HWY_INLINE void sums(const GraphAttention<T>& a, int64_t row, int64_t begin, int64_t end, T* out) {
  const int64_t heads = heads_of<kHeads>(a);
  T z[kMaxHeads];
  T* largest = out;
  T* sum = out + heads;
  logits<kHeads>(a, a.col[begin], row, largest);
  for (int64_t e = begin + 1; e < end; ++e) {
    logits<kHeads>(a, a.col[e], row, z);
    for (int64_t k = 0; k < heads; ++k) largest[k] = z[k] > largest[k] ? z[k] : largest[k];
  }
  std::fill_n(sum, heads, T{0});
  for (int64_t e = begin; e < end; ++e) {
    logits<kHeads>(a, a.col[e], row, z);
    for (int64_t k = 0; k < heads; ++k) sum[k] += math::exp(z[k] - largest[k]);
  }
}

template <int kHeads, class Loops, class T>
HWY_INLINE void values(const GraphAttention<T>& a, int64_t row, int64_t begin, int64_t end,
                       T* out) {
  const int64_t heads = heads_of<kHeads>(a), all = heads * a.width;
  T z[kMaxHeads], p[kMaxHeads], c[kMaxHeads];
  std::fill_n(out, all, T{0});
  for (int64_t e = begin; e < end; ++e) {
    if (e + kAhead < end) Loops::fetch(a.h + a.col[e + kAhead] * all, all);
    coefficients<kHeads>(a, a.col[e], row, e, z, p, c);
    const T* h = a.h + a.col[e] * all;
    for (int64_t k = 0; k < heads; ++k)
      Loops::add_scaled(c[k], h + k * a.width, out + k * a.width, a.width);
  }
}

template <int kHeads, class Loops, class T>
HWY_INLINE void target(const GraphAttention<T>& a, int64_t row, int64_t begin, int64_t end,
                       T* out) {
  const int64_t heads = heads_of<kHeads>(a), all = heads * a.width;
  T z[kMaxHeads], p[kMaxHeads], c[kMaxHeads], g[kMaxHeads];
  std::fill_n(out, 3 * heads, T{0});
  const T* dy = a.dy + row * all;
  for (int64_t e = begin; e < end; ++e) {
    if (e + kAhead < end) Loops::fetch(a.h + a.col[e + kAhead] * all, all);
    coefficients<kHeads>(a, a.col[e], row, e, z, p, c);
    const T* h = a.h + a.col[e] * all;
    for (int64_t k = 0; k < heads; ++k)
      g[k] = Loops::dot(dy + k * a.width, h + k * a.width, a.width);
    for (int64_t k = 0; k < heads; ++k) {
      const T l = z[k] > 0 ? T{1} : a.slope, cg = c[k] * g[k];
      out[k] += cg;
      out[heads + k] += l * cg;
      out[2 * heads + k] += l * p[k];
    }
  }
}

template <int kHeads, class Loops, class T>
HWY_INLINE void source(const GraphAttention<T>& a, int64_t row, int64_t begin, int64_t end,
                       T* out) {
  const int64_t heads = heads_of<kHeads>(a), all = heads * a.width;
  T z[kMaxHeads], p[kMaxHeads], c[kMaxHeads], g[kMaxHeads];
  std::fill_n(out, all + heads, T{0});
  const T* h = a.h + row * all;
  for (int64_t e = begin; e < end; ++e) {
    const int64_t to = a.col[e];
    if (e + kAhead < end) Loops::fetch(a.dy + a.col[e + kAhead] * all, all);
    coefficients<kHeads>(a, row, to, a.position[e], z, p, c);
    const T* dy = a.dy + to * all;
    const T* mean = a.mean + to * heads;
    for (int64_t k = 0; k < heads; ++k) {
      g[k] = Loops::dot(dy + k * a.width, h + k * a.width, a.width);
      Loops::add_scaled(c[k], dy + k * a.width, out + k * a.width, a.width);
    }
    for (int64_t k = 0; k < heads; ++k) {
      const T l = z[k] > 0 ? T{1} : a.slope;
      out[all + k] += l * (c[k] * g[k] - p[k] * mean[k]);
    }
  }
}

struct Vectors {
  static HWY_INLINE float dot(const float* x, const float* y, int64_t n) {
    // At most eight lanes, because a head has few features.
    const hn::CappedTag<float, 8> d;
    const hn::CappedTag<float, 4> quad;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d)),
               four = static_cast<int64_t>(hn::Lanes(quad));
    auto sum = hn::Zero(d);
    int64_t f = 0;
    for (; f + lanes <= n; f += lanes)
      sum = hn::MulAdd(hn::LoadU(d, x + f), hn::LoadU(d, y + f), sum);
    float total = hn::GetLane(hn::SumOfLanes(d, sum));
    for (; f + four <= n; f += four)
      total += hn::GetLane(
          hn::SumOfLanes(quad, hn::Mul(hn::LoadU(quad, x + f), hn::LoadU(quad, y + f))));
    for (; f < n; ++f) total += x[f] * y[f];
    return total;
  }
  static HWY_INLINE void add_scaled(float factor, const float* x, float* y, int64_t n) {
    const hn::CappedTag<float, 8> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto w = hn::Set(d, factor);
    int64_t f = 0;
    for (; f + lanes <= n; f += lanes)
      hn::StoreU(hn::MulAdd(w, hn::LoadU(d, x + f), hn::LoadU(d, y + f)), d, y + f);
    for (; f < n; ++f) y[f] += factor * x[f];
  }
  static HWY_INLINE void fetch(const float* x, int64_t n) {
    for (int64_t f = 0; f < n; f += 16) hwy::Prefetch(x + f);
  }
};

HWY_ATTR void Sums(const View& a, int64_t row, int64_t begin, int64_t end, float* out) {
  with_heads(a.heads,
             [&](auto heads) HWY_ATTR { sums<decltype(heads)::value>(a, row, begin, end, out); });
}
HWY_ATTR void Values(const View& a, int64_t row, int64_t begin, int64_t end, float* out) {
  with_heads(a.heads, [&](auto heads) HWY_ATTR {
    values<decltype(heads)::value, Vectors>(a, row, begin, end, out);
  });
}
HWY_ATTR void Target(const View& a, int64_t row, int64_t begin, int64_t end, float* out) {
  with_heads(a.heads, [&](auto heads) HWY_ATTR {
    target<decltype(heads)::value, Vectors>(a, row, begin, end, out);
  });
}
HWY_ATTR void Source(const View& a, int64_t row, int64_t begin, int64_t end, float* out) {
  with_heads(a.heads, [&](auto heads) HWY_ATTR {
    source<decltype(heads)::value, Vectors>(a, row, begin, end, out);
  });
}

HWY_ATTR void Sums64(const GraphAttention<double>& a, int64_t row, int64_t begin, int64_t end,
                     double* out) {
  sums<0>(a, row, begin, end, out);
}
HWY_ATTR void Values64(const GraphAttention<double>& a, int64_t row, int64_t begin, int64_t end,
                       double* out) {
  values<0, Plain>(a, row, begin, end, out);
}
HWY_ATTR void Target64(const GraphAttention<double>& a, int64_t row, int64_t begin, int64_t end,
                       double* out) {
  target<0, Plain>(a, row, begin, end, out);
}
HWY_ATTR void Source64(const GraphAttention<double>& a, int64_t row, int64_t begin, int64_t end,
                       double* out) {
  source<0, Plain>(a, row, begin, end, out);
}
}  // namespace HWY_NAMESPACE
}  // namespace frugal::ops::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::ops::simd {

HWY_EXPORT(Sums);
HWY_EXPORT(Values);
HWY_EXPORT(Target);
HWY_EXPORT(Source);

void attention_sums(const GraphAttention<float>& a, int64_t row, int64_t begin, int64_t end,
                    float* out) {
  HWY_DYNAMIC_DISPATCH(Sums)(a, row, begin, end, out);
}
void attention_values(const GraphAttention<float>& a, int64_t row, int64_t begin, int64_t end,
                      float* out) {
  HWY_DYNAMIC_DISPATCH(Values)(a, row, begin, end, out);
}
void attention_target(const GraphAttention<float>& a, int64_t row, int64_t begin, int64_t end,
                      float* out) {
  HWY_DYNAMIC_DISPATCH(Target)(a, row, begin, end, out);
}
void attention_source(const GraphAttention<float>& a, int64_t row, int64_t begin, int64_t end,
                      float* out) {
  HWY_DYNAMIC_DISPATCH(Source)(a, row, begin, end, out);
}

void attention_sums(const GraphAttention<double>& a, int64_t row, int64_t begin, int64_t end,
                    double* out) {
  HWY_STATIC_DISPATCH(Sums64)(a, row, begin, end, out);
}
void attention_values(const GraphAttention<double>& a, int64_t row, int64_t begin, int64_t end,
                      double* out) {
  HWY_STATIC_DISPATCH(Values64)(a, row, begin, end, out);
}
void attention_target(const GraphAttention<double>& a, int64_t row, int64_t begin, int64_t end,
                      double* out) {
  HWY_STATIC_DISPATCH(Target64)(a, row, begin, end, out);
}
void attention_source(const GraphAttention<double>& a, int64_t row, int64_t begin, int64_t end,
                      double* out) {
  HWY_STATIC_DISPATCH(Source64)(a, row, begin, end, out);
}

}  // namespace frugal::ops::simd
#endif
