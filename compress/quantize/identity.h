// Identity codec: a raw copy, equal to the bit. For tests, and to measure the cost of packing
// itself.
#pragma once
#include "autograd/saved_tensor.h"

namespace frugal::compress {

class Identity final : public Codec {
 public:
  // Errors: a tensor that is not contiguous.
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override;
};

}  // namespace frugal::compress
