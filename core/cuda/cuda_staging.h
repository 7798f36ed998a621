// Copies host tensors to a device while the host goes on, and small tensors of a device to the host
// together. CUDA builds only.
#pragma once
#include <vector>

#include "core/tensor.h"

namespace frugal::cuda {

// A copy of x on `device`. The bytes of x go to pinned memory at once, so the host may then write
// to x. The copy from there to the device runs in the order of the compute stream, while the host
// goes on. Pinned memory is kept for the next tensors. Where no memory can be pinned, to_device(x,
// device) makes the copy and waits.
// x: on the host, contiguous.  Errors: those of to_device; a call while work is captured, because
// the graph would hold the copy and not the bytes.
Tensor staged(const Tensor& x, Device device);

// Copies x to an address of the device as staged() does. REQUIRES: x is not empty; no work is being
// captured.
void staged_copy(void* to, Device device, const Tensor& x);

// See core/memory/host_copies.h.
std::vector<Tensor> host_copies(const std::vector<Tensor>& tensors);

// `waiting`: pinned bytes whose copies may not have ended. `held`: all pinned bytes.
struct StagedBytes {
  int64_t used = 0, held = 0;
};
StagedBytes staged_bytes(Device device);

}  // namespace frugal::cuda
