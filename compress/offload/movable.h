// Movable: a packed tensor whose bytes can be moved elsewhere (compress/offload/offload.h).
#pragma once
#include "autograd/saved_tensor.h"

namespace frugal::compress {

class Grouped;

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
  Movable* movable() final { return this; }
  const Movable* movable() const final { return this; }
  // This tensor, if its payload is groups of codes (compress/quantize/grouped.h); null: it is not.
  virtual Grouped* grouped() { return nullptr; }
  // The bytes of codes that entropy coding has made or could make fewer; 0: there are none.
  virtual int64_t coded_bytes() const { return 0; }
};

}  // namespace frugal::compress
