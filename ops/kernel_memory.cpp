#include "ops/kernel_memory.h"

namespace frugal::ops {
namespace {

thread_local bool counting = false;

}  // namespace

KernelMemoryScope::KernelMemoryScope(bool counts) : previous_(counting) {
  counting = counting || counts;
}
KernelMemoryScope::~KernelMemoryScope() { counting = previous_; }

bool counts_kernel_memory(Device device) { return counting && device.type == DeviceType::meta; }

}  // namespace frugal::ops
