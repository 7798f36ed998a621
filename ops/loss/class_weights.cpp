#include "ops/loss/class_weights.h"

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"

namespace frugal::ops {

void weights_of_rows_kernel(Cpu, const Tensor& target, const Tensor& class_weights,
                            int64_t ignore_index, const Tensor& y) {
  const int64_t classes = class_weights.numel();
  const int64_t* at = target.data<int64_t>();
  with_real(class_weights.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* weights = class_weights.data<T>();
    T* to = y.mut<T>();
    parallel_for(0, target.numel(), 1 << 15, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t c = at[row];
        to[row] = c == ignore_index || c < 0 || c >= classes ? T{0} : weights[c];
      }
    });
  });
}

Tensor weights_of_rows(const Tensor& target, const Tensor& class_weights, int64_t ignore_index) {
  const char* const op = "weights_of_rows";
  check_dim(op, "class_weights", class_weights, 1);
  check_real(op, "class_weights", class_weights);
  check_defined(op, "target", target);
  FRUGAL_CHECK(target.dtype() == DType::i64 && target.device() == class_weights.device(),
               "[{}] expected target of dtype i64 on {}, got {}", op, class_weights.device().str(),
               describe(target));
  const Tensor at = contiguous(target), weights = contiguous(class_weights);
  Tensor y = Tensor::empty(target.shape(), class_weights.dtype(), class_weights.device());
  dispatch(y.device(),
           [&](auto backend) { weights_of_rows_kernel(backend, at, weights, ignore_index, y); });
  return y;
}

}  // namespace frugal::ops
