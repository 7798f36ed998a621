#include "ops/dense/gated.h"

#include "autograd/functions/slices.h"
#include "autograd/record.h"
#include "autograd/trace.h"
#include "autograd/transformer_functions.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"

namespace frugal {
namespace {

enum Slot { kGate, kUp };

// The variance of what is kept of gate, row-major. It is undefined where gate is known exactly.
Tensor noise_of(const SavedTensor& gate) {
  const Tensor variance = variance_of(gate);
  return variance.defined() ? ops::contiguous(variance) : variance;
}

// y from the slots, written over the variance of gate.
Tensor rebuild_gated(const Slots& s, Gate kind) {
  const SavedTensor &gate = s[kGate], &up = s[kUp];
  const Tensor variance = noise_of(gate);
  if (!variance.defined()) return ops::gated(kind, gate.unpack(), up.unpack());
  const Tensor y = over(variance);
  for_slices({&gate, &up}, variance, [&](const Rows& rows) {
    ops::gated_into(kind, ops::contiguous(gate.unpack_rows(rows)),
                    ops::contiguous(up.unpack_rows(rows)), rows_of(variance, rows),
                    rows_of(y, rows));
  });
  return y;
}

// dgate is written over dy if nobody else holds it.
Grads gated_gradients(const Backward& b, Gate kind) {
  const bool of_gate = b.needs(kGate), of_up = b.needs(kUp);
  const Tensor dy = ops::contiguous(b.take_dy());
  const auto like = [&] { return Tensor::empty(dy.shape(), dy.dtype(), dy.device()); };
  const ops::GatedGradients to{of_gate ? over(dy) : Tensor(), of_up ? like() : Tensor()};
  const SavedTensor &gate = b.slot(kGate), &up = b.slot(kUp);
  const Tensor variance = noise_of(gate);
  const auto run = [&](const Rows& rows) {
    ops::gated_backward_into(kind, rows_of(dy, rows), ops::contiguous(gate.unpack_rows(rows)),
                             of_gate ? ops::contiguous(up.unpack_rows(rows)) : Tensor(),
                             rows_of(variance, rows),
                             {rows_of(to.dgate, rows), rows_of(to.dup, rows)});
  };
  if (of_gate)
    for_slices({&gate, &up}, variance, run);
  else
    for_slices({&gate}, variance, run);
  return {to.dgate, to.dup};
}

// What dy is multiplied by for dgate and for dup.
ops::GatedGradients factors_of(Gate kind, const Tensor& gate, const Tensor& up) {
  const Tensor ones = [&] {
    const CategoryScope scope(Category::workspace);
    return Tensor::full(gate.shape(), 1, gate.dtype(), gate.device());
  }();
  const auto like = [&] { return Tensor::empty(gate.shape(), gate.dtype(), gate.device()); };
  ops::GatedGradients made{like(), like()};
  ops::gated_backward_into(kind, ones, ops::contiguous(gate), ops::contiguous(up), {}, made);
  return made;
}

}  // namespace

// y = act(gate) up, dgate = dy up act'(gate), dup = dy act(gate): linear in up and smooth in gate.
// The noise of gate is taken away by its variance, and the noise of up is another one.
Variable gated(const Variable& gate, const Variable& up, Gate kind) {
  const Variables inputs{gate, up};
  const auto describe = [&](TracedOp& t) { t.set("kind", static_cast<int64_t>(kind)); };
  Tensor y = ops::gated(kind, gate.value(), up.value());
  Save input = save(gate);
  input.curved = true;
  if (!keeps_known_noise("gated", inputs, input)) {
    const ops::GatedGradients factors = factors_of(kind, gate.value(), up.value());
    return record({"gated", describe}, inputs, std::move(y),
                  {save_output(factors.dgate), save_output(factors.dup)}, [](const Backward& b) {
                    Grads grads(2);
                    for (const int i : {kGate, kUp})
                      if (b.needs(i)) grads[static_cast<size_t>(i)] = ops::mul(b.dy(), b.saved(i));
                    return grads;
                  });
  }
  return record(
      {"gated", describe}, inputs, std::move(y),
      {input, gate.requires_grad() ? save(up) : for_recipe(up)},
      [kind](const Backward& b) { return gated_gradients(b, kind); },
      smooth_recipe([kind](const Slots& s) { return rebuild_gated(s, kind); }, 1u << kUp));
}

}  // namespace frugal
