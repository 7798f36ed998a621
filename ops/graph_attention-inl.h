// The loops of ops/graph_attention_loops.h as templates, which each pass over the instruction sets
// compiles into its own functions: everything is inlined.
#pragma once
#include <algorithm>
#include <array>

#include "ops/graph_attention_loops.h"
#include "ops/scalar_math.h"

namespace frugal::ops::simd::attention {

template <class T>
FRUGAL_HD T leaky(T z, T slope) {
  return z > 0 ? z : z * slope;
}

// logits [heads] of the edge source -> target.
template <class T>
FRUGAL_HD void logits(const GraphAttention<T>& a, int64_t source, int64_t target, T* out) {
  const T* from = a.a_src + source * a.heads;
  const T* to = a.a_dst + target * a.heads;
  for (int64_t k = 0; k < a.heads; ++k) out[k] = leaky(from[k] + to[k], a.slope);
}

// p [heads]: the coefficients before dropout; c: after it.
template <class T>
FRUGAL_HD void coefficients(const GraphAttention<T>& a, int64_t source, int64_t target,
                            int64_t entry, T* p, T* c) {
  logits(a, source, target, p);
  const T* lse = a.lse + target * a.heads;
  for (int64_t k = 0; k < a.heads; ++k) p[k] = math::exp(p[k] - lse[k]);
  std::copy_n(p, a.heads, c);
  if (!a.drops) return;
  std::array<uint32_t, 4> words{};
  for (int64_t k = 0; k < a.heads; ++k) {
    const auto index = static_cast<uint64_t>(entry * a.heads + k);
    if (k == 0 || index % 4 == 0) words = philox(a.key, index / 4);
    c[k] = words[index % 4] >> 8 >= a.bound ? c[k] * a.scale : T{0};
  }
}

template <class T>
FRUGAL_HD T dot(const T* x, const T* y, int64_t n) {
  T sum{0};
#pragma omp simd reduction(+ : sum)
  for (int64_t f = 0; f < n; ++f) sum += x[f] * y[f];
  return sum;
}

template <class T>
FRUGAL_HD void add_scaled(T factor, const T* x, T* y, int64_t n) {
#pragma omp simd
  for (int64_t f = 0; f < n; ++f) y[f] += factor * x[f];
}

template <class T>
FRUGAL_HD void sums(const GraphAttention<T>& a, int64_t row, int64_t begin, int64_t end, T* out) {
  T z[kMaxHeads];
  T* largest = out;
  T* sum = out + a.heads;
  logits(a, a.col[begin], row, largest);
  for (int64_t e = begin + 1; e < end; ++e) {
    logits(a, a.col[e], row, z);
    for (int64_t k = 0; k < a.heads; ++k) largest[k] = z[k] > largest[k] ? z[k] : largest[k];
  }
  std::fill_n(sum, a.heads, T{0});
  for (int64_t e = begin; e < end; ++e) {
    logits(a, a.col[e], row, z);
    for (int64_t k = 0; k < a.heads; ++k) sum[k] += math::exp(z[k] - largest[k]);
  }
}

template <class T>
FRUGAL_HD void values(const GraphAttention<T>& a, int64_t row, int64_t begin, int64_t end, T* out) {
  T p[kMaxHeads], c[kMaxHeads];
  const int64_t all = a.heads * a.width;
  std::fill_n(out, all, T{0});
  for (int64_t e = begin; e < end; ++e) {
    coefficients(a, a.col[e], row, e, p, c);
    const T* h = a.h + a.col[e] * all;
    for (int64_t k = 0; k < a.heads; ++k)
      add_scaled(c[k], h + k * a.width, out + k * a.width, a.width);
  }
}

template <class T>
FRUGAL_HD void target(const GraphAttention<T>& a, int64_t row, int64_t begin, int64_t end, T* out) {
  T p[kMaxHeads], c[kMaxHeads], z[kMaxHeads];
  const int64_t all = a.heads * a.width;
  std::fill_n(out, 3 * a.heads, T{0});
  for (int64_t e = begin; e < end; ++e) {
    logits(a, a.col[e], row, z);
    coefficients(a, a.col[e], row, e, p, c);
    const T* h = a.h + a.col[e] * all;
    const T* dy = a.dy + row * all;
    for (int64_t k = 0; k < a.heads; ++k) {
      const T g = dot(dy + k * a.width, h + k * a.width, a.width);
      const T l = z[k] > 0 ? T{1} : a.slope;
      out[k] += c[k] * g;
      out[a.heads + k] += l * c[k] * g;
      out[2 * a.heads + k] += l * p[k];
    }
  }
}

template <class T>
FRUGAL_HD void source(const GraphAttention<T>& a, int64_t row, int64_t begin, int64_t end, T* out) {
  T p[kMaxHeads], c[kMaxHeads], z[kMaxHeads];
  const int64_t all = a.heads * a.width;
  std::fill_n(out, all + a.heads, T{0});
  const T* h = a.h + row * all;
  for (int64_t e = begin; e < end; ++e) {
    const int64_t to = a.col[e];
    logits(a, row, to, z);
    coefficients(a, row, to, a.position[e], p, c);
    const T* dy = a.dy + to * all;
    for (int64_t k = 0; k < a.heads; ++k) {
      const T g = dot(dy + k * a.width, h + k * a.width, a.width);
      const T l = z[k] > 0 ? T{1} : a.slope;
      out[all + k] += l * (c[k] * g - p[k] * a.mean[to * a.heads + k]);
      add_scaled(c[k], dy + k * a.width, out + k * a.width, a.width);
    }
  }
}

}  // namespace frugal::ops::simd::attention
