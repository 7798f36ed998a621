// What core asks of CUDA, for code that does not include CUDA's headers. Defined in CUDA builds
// only.
#pragma once
#include <memory>

#include "core/memory.h"

namespace frugal::cuda {

int device_count();  // that this machine has; 0 without a driver
// Caching and in the order of the compute stream: a block may be used again at once, since what
// was queued before runs before. With FRUGAL_ALLOCATOR=one_by_one in the environment every tensor
// is a piece of the system's memory, so that memory checkers see where it ends; slow.
// Errors: no such device, naming those that are there.
Allocator& allocator(int index);
// Memory of the current device for what is no tensor's: accounts hold what plans on `meta` hold.
// Errors: OutOfMemory.
std::shared_ptr<void> system_memory(int64_t bytes);
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes);
void zero_bytes(void* data, int64_t bytes);
// `count` times the `size` bytes (1, 2, 4 or 8) at `value`.
void fill(void* data, int64_t count, const void* value, size_t size);
void synchronize();  // waits for what was queued on the current device
// What helps where a call returned this status (a cudaError_t), to be said after it; "" for most.
const char* advice(int status);

}  // namespace frugal::cuda
