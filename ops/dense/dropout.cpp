#include "ops/dense/dropout.h"

#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise_loops.h"
#include "ops/f32_blocks.h"

namespace frugal::ops {

void dropout_kernel(Cpu, const Tensor& x, double p, RngKey key, const Tensor& y, int64_t first) {
  const simd::Drop drop = simd::drop_of(p, key);  // the decisions are the same for every dtype
  if (x.dtype() == DType::f64) {
    const double scale = p < 1 ? 1 / (1 - p) : 0;
    for (int64_t i = 0; i < x.numel(); ++i) {
      const auto index = static_cast<uint64_t>(first + i);
      const bool kept = philox(key, index / 4)[index % 4] >> 8 >= drop.bound;
      y.mut<double>()[i] = kept ? x.data<double>()[i] * scale : 0;
    }
    return;
  }
  constexpr int64_t kBlock = 1 << 12;  // elements; whole blocks of the stream
  for_f32_rows(x.numel(), 1, kBlock, 8 * kBlock, {&x}, {&y}, [&](const F32Rows& e) {
    simd::dropout(e.in[0], drop, e.out[0], first + e.first, first + e.first + e.rows);
  });
}

namespace {

void check_dropout(const Tensor& x, double p) {
  check_real("dropout", "x", x);
  FRUGAL_CHECK(p >= 0 && p <= 1, "[dropout] expected a probability in [0, 1], got {}", p);
}

}  // namespace

Tensor dropout(const Tensor& x, double p, RngKey key) {
  check_dropout(x, p);
  const Tensor in = contiguous(x);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  dispatch(x.device(), [&](auto backend) { dropout_kernel(backend, in, p, key, y, 0); });
  return y;
}

void dropout_inplace(const Tensor& x, double p, RngKey key, int64_t first) {
  check_dropout(x, p);
  FRUGAL_ASSERT(x.is_contiguous());
  dispatch(x.device(), [&](auto backend) { dropout_kernel(backend, x, p, key, x, first); });
  x.bump_version();
}

}  // namespace frugal::ops
