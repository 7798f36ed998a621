// Movable: a packed tensor whose bytes can be moved elsewhere (compress/offload/offload.h).
#pragma once
#include "autograd/saved_tensor.h"

namespace frugal::compress {

// While its payload is away, only put_payload() and the functions that tell facts about the codes
// may be called: carries_sign(), serves_one_op(), knows_variance(), loses_nothing().
class Movable : public Packed {
 public:
  // The one tensor that holds the packed bytes. It is contiguous, and nobody writes to it from now
  // on.
  virtual Tensor take_payload() = 0;
  // Gives the same bytes back, in a tensor like the one that was taken. They may be shared and are
  // only read.
  virtual void put_payload(Tensor payload) = 0;
};

}  // namespace frugal::compress
