// Reads several tensors on the host with one wait for the device.
#pragma once
#include <vector>

#include "core/tensor.h"

namespace frugal {

// The tensors on the host, in the same order. One that lies on the host is returned as it is, and
// one that is undefined stays so. Those on CUDA are read with one wait, except that a large one has
// a wait of its own.  Errors: a tensor on CUDA that is not contiguous.  REQUIRES: none is on
// `meta`.
std::vector<Tensor> host_copies(const std::vector<Tensor>& tensors);

}  // namespace frugal
