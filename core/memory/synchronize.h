// Waits for a device.
#pragma once
#include "core/device.h"

namespace frugal {

// Waits for the work that was queued on a CUDA device, which it makes current, as dispatch() does.
// Elsewhere it does nothing, as work is done at once.
void synchronize(Device device);

}  // namespace frugal
