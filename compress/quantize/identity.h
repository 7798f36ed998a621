// Identity codec: a raw copy. Bit-equal, for tests and for measuring what packing itself costs.
#pragma once
#include "autograd/saved_tensor.h"

namespace frugal::compress {

class Identity final : public Codec {
 public:
  // Errors: a tensor that is not contiguous.
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override;
};

}  // namespace frugal::compress
