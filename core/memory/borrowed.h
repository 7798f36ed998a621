// Tensors over memory that somebody else owns, such as an array of another library.
#pragma once
#include <memory>

#include "core/tensor.h"

namespace frugal {

// A tensor over the bytes at `data`, which are not copied and not accounted. `owner` is let go when
// no tensor uses the bytes any more. Strides are in elements, and none is negative. Bytes of `meta`
// cannot be borrowed.
Tensor borrow(void* data, const Shape& shape, const Shape& strides, DType dtype, Device device,
              std::shared_ptr<void> owner);

// While this lives, the next block that this thread allocates is the memory at `data`. For borrow()
// alone.
class LentBlock {
 public:
  LentBlock(void* data, std::shared_ptr<void> owner);
  ~LentBlock();
  LentBlock(const LentBlock&) = delete;
  LentBlock& operator=(const LentBlock&) = delete;
};

}  // namespace frugal
