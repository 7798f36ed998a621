// The CUDA functions that core needs, for code that does not include CUDA's headers. They exist in
// CUDA builds only.
#pragma once
#include <memory>
#include <string>

#include "core/memory.h"

namespace frugal::cuda {

int device_count();  // devices of this machine; 0 without a driver
// What CUDA calls a device, as "NVIDIA H100"; empty if there is no such device.
std::string device_name(int index);
// Why there are none, for a message: no device, or what CUDA says of a driver that is missing, too
// old or broken. Empty where there is a device.
std::string why_no_device();
// The caching allocator of a device. It follows the order of the compute stream: a released block
// may be used again at once, because work that was queued before runs before. With
// FRUGAL_ALLOCATOR=one_by_one in the environment every tensor is a separate piece of the system's
// memory, so that memory checkers see where a tensor ends. That is slow.
// Errors: no such device; the message names the devices that exist.
Allocator& allocator(int index);
// The bytes of memory that a device has, used or not; 0 if there is no such device.
int64_t total_memory(int index);
// Memory of the current device that belongs to no tensor. It is not accounted, so that a step on
// the device and a plan on `meta` count the same bytes.  Errors: OutOfMemory.
std::shared_ptr<void> system_memory(int64_t bytes);
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes);
void zero_bytes(void* data, int64_t bytes);
// Writes `count` copies of the value at `value`, which has `size` bytes (1, 2, 4 or 8).
void fill(void* data, int64_t count, const void* value, size_t size);
void synchronize();  // waits for the work that was queued on the current device
// A sentence that helps where a call returned this status (a cudaError_t); messages end with it.
// Empty for most statuses.
const char* advice(int status);

}  // namespace frugal::cuda
