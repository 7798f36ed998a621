// BackwardObserver: sees the gradients of a backward pass. Policies that learn from gradients use
// it. An observer may read what it is shown and must not write. What it is shown lives until the
// call ends.
#pragma once
#include "autograd/gradient.h"
#include "autograd/saved_tensor.h"

namespace frugal {

// One op of the graph. Ops inside a checkpoint are not shown, because what they save is kept raw.
struct BackwardStep {
  const char* op;
  const Slots& slots;  // see SavedTensor::use() and rests_on(); each unpack() does its work again
};

class BackwardObserver {
 public:
  virtual ~BackwardObserver() = default;
  // Called before an op's backward, with the whole gradient of the op's output.
  virtual void before(const BackwardStep&, const Tensor& /*dy*/) {}
  // Called after it, with the whole gradients of the inputs. One is undefined where there is none,
  // or where the backward added it to the gradient from the input's other consumers.
  virtual void after(const BackwardStep&, const Grads& /*gradients*/) {}
};

}  // namespace frugal
