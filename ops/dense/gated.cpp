#include "ops/dense/gated.h"

#include "ops/checks.h"
#include "ops/dense/gated_loops.h"
#include "ops/f32_blocks.h"
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

// Calls f(F32Rows) over elements in blocks that do not depend on the number of threads, because
// other instructions may compute the last elements of a block.
template <class F>
void for_gates(std::initializer_list<const Tensor*> in, std::initializer_list<const Tensor*> out,
               F f) {
  constexpr int64_t kGateBlock = 1 << 12;  // elements
  for_f32_rows((*in.begin())->numel(), 1, kGateBlock, kExponentialGrain, in, out, f);
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
  for_gates({&gate, &up, &variance}, {&y}, [&](const F32Rows& e) {
    simd::gated(kind, e.in[0], e.in[1], e.in[2], e.out[0], e.rows);
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
  for_gates({&dy, &gate, &up, &variance}, {&to.dgate, &to.dup}, [&](const F32Rows& e) {
    simd::gated_backward(kind, e.in[0], e.in[1], e.in[2], e.in[3], {e.out[0], e.out[1]}, e.rows);
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
