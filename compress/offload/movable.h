// Movable: a packed tensor whose bytes can lie elsewhere (compress/offload/offload.h).
#pragma once
#include "autograd/saved_tensor.h"

namespace frugal::compress {

// While its payload is away, only carries_sign(), knows_variance() and put_payload() may be called.
class Movable : public Packed {
 public:
  // The one tensor that holds the packed bytes: contiguous, and written by nobody from here on.
  virtual Tensor take_payload() = 0;
  // The same bytes again, in a tensor like the one taken. They may be shared, and are only read.
  virtual void put_payload(Tensor payload) = 0;
};

}  // namespace frugal::compress
