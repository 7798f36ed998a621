// Devices, and the choice of a backend at compile time. A missing CUDA kernel is a link error that
// names the op.
#pragma once
#include <string>

#include "core/error.h"

namespace frugal {

enum class DeviceType : uint8_t { cpu, cuda, meta };

// Tensors on `meta` have a shape and accounted bytes, but no memory. Ops on them check, allocate
// and run nothing.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
  std::string str() const;                       // "cpu", "cuda:0", "meta"
  static Device parse(const std::string& text);  // Errors: an unknown device; the message lists the
                                                 // known ones
};
inline constexpr Device kCpu{DeviceType::cpu, 0};
inline constexpr Device kMeta{DeviceType::meta, 0};

struct Cpu {};
struct Cuda {};

namespace cuda {
// Makes a device current for this thread, where another one is.  Errors: no such device. It exists
// in CUDA builds only.
void make_current(int index);
}  // namespace cuda

inline constexpr const char* kWithoutCuda = "built without CUDA; configure with the `cuda` preset";
#ifdef FRUGAL_CUDA
inline constexpr bool kHasCuda = true;
#else
inline constexpr bool kHasCuda = false;
#endif

// Calls f(Cpu{}) or f(Cuda{}). For CUDA it makes the device current first, so that f's kernels run
// where the tensors are. On `meta` it calls nothing: shapes are checked and outputs are allocated
// by then.
template <class F>
void dispatch(Device device, F&& f) {
  if (device.type == DeviceType::cpu) return f(Cpu{});
  if constexpr (kHasCuda) {
    if (device.type == DeviceType::cuda) {
      cuda::make_current(device.index);
      return f(Cuda{});
    }
  }
  if (device.type == DeviceType::meta) return;
  throw Error(kWithoutCuda);
}

}  // namespace frugal
