#include "ops/dense/gated.h"

#include <algorithm>

#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/gated_loops.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

constexpr const char* kOp = "gated";

void check_gated(const Tensor& gate, std::initializer_list<const Tensor*> others) {
  check_real(kOp, "gate", gate);
  check_same(kOp, gate, others);
  FRUGAL_ASSERT(gate.is_contiguous());
  for (const Tensor* other : others)
    FRUGAL_ASSERT(!other->defined() || (other->shape() == gate.shape() && other->is_contiguous()));
}

// Calls f(begin, end) over [0, n) in blocks that do not depend on the number of threads, because
// other instructions may compute the last elements of a block.
template <class F>
void for_blocks(int64_t n, F f) {
  constexpr int64_t kBlock = 1 << 12;  // elements
  parallel_for(0, (n + kBlock - 1) / kBlock, kExponentialGrain / kBlock,
               [&](int64_t first, int64_t last) {
                 for (int64_t block = first; block < last; ++block)
                   f(block * kBlock, std::min(n, (block + 1) * kBlock));
               });
}

template <class T>
const T* at(const Tensor& x, int64_t i) {
  return x.defined() ? x.data<T>() + i : nullptr;
}
template <class T>
T* mut_at(const Tensor& x, int64_t i) {
  return x.defined() ? x.mut<T>() + i : nullptr;
}

}  // namespace

void gated_kernel(Cpu, Gate kind, const Tensor& gate, const Tensor& up, const Tensor& variance,
                  const Tensor& y) {
  if (gate.dtype() == DType::f64) {
    with_gate(kind, [&](auto f) {
      const double *g = gate.data<double>(), *u = up.data<double>();
      const double* v = data_or_null<double>(variance);
      for (int64_t i = 0; i < gate.numel(); ++i)
        y.mut<double>()[i] = (v == nullptr ? f.f(g[i]) : estimate(f, g[i], v[i])) * u[i];
    });
    return;
  }
  for_blocks(gate.numel(), [&](int64_t begin, int64_t end) {
    simd::gated(kind, gate.data<float>() + begin, up.data<float>() + begin,
                at<float>(variance, begin), y.mut<float>() + begin, end - begin);
  });
}

void gated_backward_kernel(Cpu, Gate kind, const Tensor& dy, const Tensor& gate, const Tensor& up,
                           const Tensor& variance, const GatedGradients& to) {
  if (gate.dtype() == DType::f64) {
    with_gate(kind, [&](auto f) {
      const double *d = dy.data<double>(), *g = gate.data<double>();
      const double *u = data_or_null<double>(up), *v = data_or_null<double>(variance);
      for (int64_t i = 0; i < gate.numel(); ++i) {
        const double own = d[i];
        if (to.dup.defined())
          to.dup.mut<double>()[i] = own * (v == nullptr ? f.f(g[i]) : estimate(f, g[i], v[i]));
        if (to.dgate.defined())
          to.dgate.mut<double>()[i] =
              v == nullptr ? f.df(own * u[i], g[i]) : backward_estimate(f, own * u[i], g[i], v[i]);
      }
    });
    return;
  }
  for_blocks(gate.numel(), [&](int64_t begin, int64_t end) {
    simd::gated_backward(kind, dy.data<float>() + begin, gate.data<float>() + begin,
                         at<float>(up, begin), at<float>(variance, begin),
                         {mut_at<float>(to.dgate, begin), mut_at<float>(to.dup, begin)},
                         end - begin);
  });
}

void gated_into(Gate kind, const Tensor& gate, const Tensor& up, const Tensor& variance,
                const Tensor& y) {
  check_gated(gate, {&up, &variance, &y});
  dispatch(gate.device(),
           [&](auto backend) { gated_kernel(backend, kind, gate, up, variance, y); });
  y.bump_version();
}

void gated_backward_into(Gate kind, const Tensor& dy, const Tensor& gate, const Tensor& up,
                         const Tensor& variance, const GatedGradients& to) {
  check_gated(gate, {&dy, &up, &variance, &to.dgate, &to.dup});
  FRUGAL_ASSERT(up.defined() || !to.dgate.defined());
  dispatch(gate.device(),
           [&](auto backend) { gated_backward_kernel(backend, kind, dy, gate, up, variance, to); });
  for (const Tensor* x : {&to.dgate, &to.dup})
    if (x->defined()) x->bump_version();
}

Tensor gated(Gate kind, const Tensor& gate, const Tensor& up, const Tensor& variance) {
  check_real(kOp, "gate", gate);
  check_shape(kOp, "up", up, gate.shape());
  check_same(kOp, gate, {&up, &variance});
  if (variance.defined()) check_shape(kOp, "the variance", variance, gate.shape());
  Tensor y = Tensor::empty(gate.shape(), gate.dtype(), gate.device());
  gated_into(kind, contiguous(gate), contiguous(up), contiguous_or_none(variance), y);
  return y;
}

}  // namespace frugal::ops
