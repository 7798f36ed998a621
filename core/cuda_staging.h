// Host tensors on their way to a device without the host waiting. Defined in CUDA builds only.
#pragma once
#include "core/tensor.h"

namespace frugal::cuda {

// x on `device`: its bytes are copied to pinned memory at once, so that the host may write to x,
// and from there in the order of the compute stream, while the host goes on. Pinned memory is kept
// for the next tensors; where there is none to pin, to_device(x, device), which waits.
// x: on the host, contiguous.  Errors: to_device's; while work is recorded, into which the copy
// would go, and not the bytes.
Tensor staged(const Tensor& x, Device device);

// The same to an address of the device. REQUIRES: x is not empty; nothing is being recorded.
void staged_copy(void* to, Device device, const Tensor& x);

// Pinned bytes whose copies have not been seen to end, and all that are held.
struct StagedBytes {
  int64_t used = 0, held = 0;
};
StagedBytes staged_bytes(Device device);

}  // namespace frugal::cuda
