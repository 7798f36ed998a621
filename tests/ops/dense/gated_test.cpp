#include "ops/dense/gated.h"

#include <doctest/doctest.h>

#include "ops/dense/elementwise.h"
#include "tests/ops/samples.h"

namespace frugal::ops {
namespace {

double act(Gate kind, double x) {
  if (kind == Gate::silu) return x / (1 + std::exp(-x));
  if (kind == Gate::gelu) return x * std::erfc(-x / std::numbers::sqrt2) / 2;
  return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
double slope(Gate kind, double x) { return (act(kind, x + 1e-6) - act(kind, x - 1e-6)) / 2e-6; }

constexpr Gate kKinds[] = {Gate::silu, Gate::gelu, Gate::gelu_tanh};

}  // namespace

TEST_CASE("gated: act(gate) up and its gradients") {
  for (const Gate kind : kKinds)
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Tensor gate = normals({9000}, 1, dtype), up = normals({9000}, 2, dtype),
                   dy = normals({9000}, 3, dtype);
      std::vector<double> y, dgate, dup;
      for (int64_t i = 0; i < gate.numel(); ++i) {
        const double g = gate.item(i), u = up.item(i), d = dy.item(i);
        y.push_back(act(kind, g) * u);
        dgate.push_back(d * u * slope(kind, g));
        dup.push_back(d * act(kind, g));
      }
      const double bound = dtype == DType::f32 ? 1e-5 : 1e-7;
      CHECK(error(gated(kind, gate, up), y) < bound);
      const GatedGradients to{Tensor::empty(gate.shape(), dtype),
                              Tensor::empty(gate.shape(), dtype)};
      gated_backward_into(kind, dy, gate, up, {}, to);
      CHECK(error(to.dgate, dgate) < bound);
      CHECK(error(to.dup, dup) < bound);
      const Tensor over = Tensor::from(dy.to_vector(), dy.shape());
      const Tensor own = cast(over, dtype);
      gated_backward_into(kind, own, gate, up, {}, {own, {}});
      CHECK(same_bits(own, to.dgate));
      const ThreadsScope threads(3);
      CHECK(same_bits(gated(kind, gate, up), gated(kind, with_gaps(gate), with_gaps(up))));
    }
}

TEST_CASE("gated: the variance of the gate is taken away as from the function itself") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor gate = normals({501}, 1, dtype), up = normals({501}, 2, dtype),
                 dy = normals({501}, 3, dtype);
    const Tensor variance = Tensor::full({501}, 0.03, dtype);
    const Tensor y = gated(Gate::silu, gate, up, variance);
    CHECK(error(y, mul(unary_estimate(Unary::silu, gate, variance), up).to_vector()) < 1e-6);
    const GatedGradients to{Tensor::empty({501}, dtype), Tensor::empty({501}, dtype)};
    gated_backward_into(Gate::silu, dy, gate, up, variance, to);
    const Tensor by = unary_backward_estimate(Unary::silu, mul(dy, up), gate, variance);
    CHECK(error(to.dgate, by.to_vector()) < 1e-6);
    CHECK(error(to.dup, mul(unary_estimate(Unary::silu, gate, variance), dy).to_vector()) < 1e-6);
  }
}

}  // namespace frugal::ops
