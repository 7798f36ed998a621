// BackwardObserver: who learns from the gradients of a backward pass, as policies do that decide by
// them. It may read and must not write; what it is shown lives until the call ends.
#pragma once
#include "autograd/gradient.h"
#include "autograd/saved_tensor.h"

namespace frugal {

// One op of the graph. Ops inside a checkpoint are not shown: what they save is raw.
struct BackwardStep {
  const char* op;
  const Slots& slots;  // see SavedTensor::use() and rests_on(); unpacking costs what it costs
};

class BackwardObserver {
 public:
  virtual ~BackwardObserver() = default;
  // Before an op's backward: dy, whole, of the op's output.
  virtual void before(const BackwardStep&, const Tensor& /*dy*/) {}
  // After it: the gradients of its inputs, whole; undefined where there is none, or where it went
  // to what the input's other consumers gave.
  virtual void after(const BackwardStep&, const Grads& /*gradients*/) {}
};

}  // namespace frugal
