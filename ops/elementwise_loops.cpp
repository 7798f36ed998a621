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

void Affine(const float* HWY_RESTRICT x, float factor, float term, float* HWY_RESTRICT y,
            int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor + term;
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::ops::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::ops::simd {

HWY_EXPORT(BinaryOp);
HWY_EXPORT(UnaryOp);
HWY_EXPORT(UnaryBackward);
HWY_EXPORT(Affine);

void binary(Binary op, const float* a, const float* b, float* y, const Operands& layout) {
  HWY_DYNAMIC_DISPATCH(BinaryOp)(op, a, b, y, layout);
}
void unary(Unary op, const float* x, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(UnaryOp)(op, x, y, n);
}
void unary_backward(Unary op, const float* dy, const float* saved, float* dx, int64_t n) {
  HWY_DYNAMIC_DISPATCH(UnaryBackward)(op, dy, saved, dx, n);
}
void affine(const float* x, float factor, float term, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Affine)(x, factor, term, y, n);
}

}  // namespace frugal::ops::simd
#endif
