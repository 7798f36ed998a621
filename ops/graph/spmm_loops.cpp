#include "ops/graph/spmm_loops.h"

#include "core/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/graph/spmm_loops.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "ops/simd/storage-inl.h"

// Sums stay in registers: the columns of a row are taken in blocks of up to 8 vectors, and for each
// block the entries of the row are walked. The rows of x that the entries name may lie anywhere, so
// rows of later entries are prefetched.
HWY_BEFORE_NAMESPACE();
namespace frugal::ops::simd {
namespace HWY_NAMESPACE {

// Calls f with an element of the type of x and y.
template <class F>
void with_type(const Spmm& a, F f) {
  a.x.bf16 ? f(BFloat16{}) : f(float{});
}
constexpr int64_t kAhead = 6;

HWY_INLINE float weight_of(const Spmm& a, int64_t e) {
  float w = a.value != nullptr ? a.value[e] : 1.0F;
  if (a.entry_counts != nullptr) {
    const int64_t* at = a.entry_counts + a.col[e];
    w /= static_cast<float>(at[1] - at[0]);
  }
  return w;
}

HWY_INLINE float scale_of(const Spmm& a, int64_t row) {
  if (!a.mean) return a.factor;
  const int64_t entries = a.row_ptr[row + 1] - a.row_ptr[row];
  return entries > 0 ? a.factor / static_cast<float>(entries) : 0.0F;
}

// Calls f(d, first column, integral_constant vectors) over the columns.
template <class F>
HWY_INLINE void for_blocks(int64_t width, F f) {
  const hn::ScalableTag<float> wide;
  const hn::CappedTag<float, 4> quad;
  const hn::CappedTag<float, 1> one;
  const auto n = static_cast<int64_t>(hn::Lanes(wide)), q = static_cast<int64_t>(hn::Lanes(quad));
  int64_t k = 0;
  for (; k + 8 * n <= width; k += 8 * n) f(wide, k, std::integral_constant<int, 8>{});
  if (k + 4 * n <= width) f(wide, k, std::integral_constant<int, 4>{}), k += 4 * n;
  if (k + 2 * n <= width) f(wide, k, std::integral_constant<int, 2>{}), k += 2 * n;
  if (k + n <= width) f(wide, k, std::integral_constant<int, 1>{}), k += n;
  for (; k + q <= width; k += q) f(quad, k, std::integral_constant<int, 1>{});
  for (; k < width; ++k) f(one, k, std::integral_constant<int, 1>{});
}

template <class T, int kVectors, class D, class V>
HWY_INLINE void sum_entries(D d, const Spmm& a, int64_t begin, int64_t end, int64_t k,
                            V (&sum)[kVectors]) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kLine = 64 / sizeof(T);
  const auto* all = static_cast<const T*>(a.x.data);
  for (int v = 0; v < kVectors; ++v) sum[v] = hn::Zero(d);
  for (int64_t e = begin; e < end; ++e) {
    if (e + kAhead < end) {
      const T* ahead = all + a.col[e + kAhead] * a.width + k;
      for (int64_t line = 0; line < kVectors * lanes; line += kLine) hwy::Prefetch(ahead + line);
    }
    const T* x = all + a.col[e] * a.width + k;
    const auto w = hn::Set(d, weight_of(a, e));
    for (int v = 0; v < kVectors; ++v) sum[v] = hn::MulAdd(w, load(d, x + v * lanes), sum[v]);
  }
}

template <class T, int kVectors, class D, class V>
HWY_INLINE void finish(D d, const Spmm& a, int64_t row, int64_t k, const V (&sum)[kVectors]) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto scale = hn::Set(d, scale_of(a, row));
  for (int v = 0; v < kVectors; ++v) {
    const int64_t at = k + v * lanes, element = row * a.stride + at;
    auto y = hn::Mul(sum[v], scale);
    if (const auto* addend = static_cast<const T*>(a.addend.data); addend != nullptr)
      y = hn::MulAdd(hn::Set(d, a.addend_factor), load(d, addend + element), y);
    if (a.bias != nullptr) y = hn::Add(y, hn::LoadU(d, a.bias + at));
    store(d, y, static_cast<T*>(a.y.data) + element);
  }
}

template <class T>
void RowsOf(const Spmm& a, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row)
    for_blocks(a.width, [&](auto d, int64_t k, auto vectors) HWY_ATTR {
      hn::Vec<decltype(d)> sum[decltype(vectors)::value];
      sum_entries<T>(d, a, a.row_ptr[row], a.row_ptr[row + 1], k, sum);
      finish<T>(d, a, row, k, sum);
    });
}

template <class T>
void PieceOf(const Spmm& a, int64_t begin, int64_t end, float* out) {
  for_blocks(a.width, [&](auto d, int64_t k, auto vectors) HWY_ATTR {
    constexpr int kVectors = decltype(vectors)::value;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    hn::Vec<decltype(d)> sum[kVectors];
    sum_entries<T>(d, a, begin, end, k, sum);
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[v], d, out + k + v * lanes);
  });
}

template <class T>
void MergeOf(const Spmm& a, int64_t row, const float* sums, int64_t pieces) {
  for_blocks(a.width, [&](auto d, int64_t k, auto vectors) HWY_ATTR {
    constexpr int kVectors = decltype(vectors)::value;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    hn::Vec<decltype(d)> sum[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      sum[v] = hn::LoadU(d, sums + k + v * lanes);
      for (int64_t p = 1; p < pieces; ++p)
        sum[v] = hn::Add(sum[v], hn::LoadU(d, sums + p * a.width + k + v * lanes));
    }
    finish<T>(d, a, row, k, sum);
  });
}

void Rows(const Spmm& a, int64_t first, int64_t last) {
  with_type(a, [&](auto t) { RowsOf<decltype(t)>(a, first, last); });
}
void Piece(const Spmm& a, int64_t begin, int64_t end, float* out) {
  with_type(a, [&](auto t) { PieceOf<decltype(t)>(a, begin, end, out); });
}
void Merge(const Spmm& a, int64_t row, const float* sums, int64_t pieces) {
  with_type(a, [&](auto t) { MergeOf<decltype(t)>(a, row, sums, pieces); });
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::ops::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::ops::simd {

HWY_EXPORT(Rows);
HWY_EXPORT(Piece);
HWY_EXPORT(Merge);

void spmm_rows(const Spmm& a, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(Rows)(a, first, last);
}
void spmm_piece(const Spmm& a, int64_t begin, int64_t end, float* sum) {
  HWY_DYNAMIC_DISPATCH(Piece)(a, begin, end, sum);
}
void spmm_merge(const Spmm& a, int64_t row, const float* sums, int64_t pieces) {
  HWY_DYNAMIC_DISPATCH(Merge)(a, row, sums, pieces);
}

}  // namespace frugal::ops::simd
#endif
