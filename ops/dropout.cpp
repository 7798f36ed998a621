#include "ops/dropout.h"

#include <cmath>

#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/copy.h"
#include "ops/dtype_switch.h"

namespace frugal::ops {

void dropout_kernel(Cpu, const Tensor& x, double p, RngKey key, const Tensor& y) {
  with_real(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* px = x.data<T>();
    T* py = y.mut<T>();
    const T scale = p < 1 ? static_cast<T>(1 / (1 - p)) : T{0};
    // uniform(key, i) >= p in whole 24-bit words: the same decision for every dtype
    const auto bound = static_cast<uint32_t>(std::ceil(p * 0x1p24));
    const int64_t n = x.numel();
    parallel_for(0, (n + 3) / 4, 1 << 12, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const auto words = philox(key, static_cast<uint64_t>(block));
        for (int64_t lane = 0; lane < 4 && block * 4 + lane < n; ++lane) {
          const int64_t i = block * 4 + lane;
          py[i] = words[static_cast<size_t>(lane)] >> 8 >= bound ? px[i] * scale : T{0};
        }
      }
    });
  });
}

Tensor dropout(const Tensor& x, double p, RngKey key) {
  check_real("dropout", "x", x);
  FRUGAL_CHECK(p >= 0 && p <= 1, "[dropout] expected a probability in [0, 1], got {}", p);
  const Tensor in = contiguous(x);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  dispatch(x.device(), [&](auto backend) { dropout_kernel(backend, in, p, key, y); });
  return y;
}

}  // namespace frugal::ops
