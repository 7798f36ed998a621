#include "ops/loss/mse.h"

#include <algorithm>
#include <vector>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/f32_blocks.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {

void mse_kernel(Cpu, const Tensor& x, const Tensor& target, const MseResult& result) {
  if (x.dtype() == DType::bf16) {
    InF32 wide;
    mse_kernel(Cpu{}, wide.read(x), wide.read(target),
               {result.loss, wide.write(result.difference)});
    return wide.finish();
  }
  constexpr int64_t kChunk = 1 << 12;  // elements whose squares are added in one sum
  const int64_t n = x.numel(), chunks = (n + kChunk - 1) / kChunk;
  std::vector<double> partial(static_cast<size_t>(chunks));
  with_real(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* a = x.data<T>();
    const T* b = target.data<T>();
    T* difference = result.difference.mut<T>();
    parallel_for(0, chunks, kCopyGrain / kChunk, [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        double total = 0;
        for (int64_t i = chunk * kChunk; i < std::min(n, (chunk + 1) * kChunk); ++i) {
          difference[i] = a[i] - b[i];
          total += static_cast<double>(difference[i]) * static_cast<double>(difference[i]);
        }
        partial[static_cast<size_t>(chunk)] = total;
      }
    });
    double total = 0;
    for (const double term : partial) total += term;
    *result.loss.mut<T>() = static_cast<T>(total / static_cast<double>(n));
  });
}

void mse_backward_kernel(Cpu, const Tensor& dy, const Tensor& difference, const Tensor& dx) {
  scale_into(difference, 2 * dy.item() / static_cast<double>(dx.numel()), dx);
}

MseResult mse(const Tensor& x, const Tensor& target) {
  check_real("mse", "x", x);
  check_shape("mse", "target", target, x.shape());
  check_same("mse", x, {&target});
  FRUGAL_CHECK(x.numel() > 0, "[mse] expected at least one element, got {}", describe(x));
  const DType dtype = dtype_beside(x);
  MseResult result{Tensor::empty({}, dtype, x.device()),
                   Tensor::empty(x.shape(), x.dtype(), x.device())};
  const Tensor a = contiguous(x), b = contiguous(target);
  dispatch(x.device(), [&](auto backend) { mse_kernel(backend, a, b, result); });
  return result;
}

Tensor mse_backward(const Tensor& dy, const Tensor& difference) {
  check_real("mse_backward", "difference", difference);
  check_shape("mse_backward", "dy", dy, {});
  check_beside("mse_backward", difference, {&dy});
  Tensor dx = Tensor::empty(difference.shape(), difference.dtype(), difference.device());
  const Tensor from = contiguous(difference);
  dispatch(dx.device(), [&](auto backend) { mse_backward_kernel(backend, dy, from, dx); });
  return dx;
}

}  // namespace frugal::ops
