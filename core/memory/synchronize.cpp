#include "core/memory/synchronize.h"

#include "core/cuda/cuda_memory.h"

namespace frugal {

void synchronize(Device device) {
  if constexpr (kHasCuda) {
    if (device.type != DeviceType::cuda) return;
    cuda::make_current(device.index);
    cuda::synchronize();
  }
}

}  // namespace frugal
