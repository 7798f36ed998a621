#include "core/memory/host_copies.h"

#include "core/cuda/cuda_staging.h"

namespace frugal {

std::vector<Tensor> host_copies(const std::vector<Tensor>& tensors) {
  if constexpr (kHasCuda) return cuda::host_copies(tensors);
  return tensors;
}

}  // namespace frugal
