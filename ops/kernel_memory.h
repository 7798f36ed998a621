// Counts on `meta` what kernels of the CPU take for themselves.
#pragma once
#include "core/device.h"

namespace frugal::ops {

// While this lives, convolutions, matrix products, attention and ops over graphs of this thread on
// `meta` also allocate, and free again, the workspace that their kernels take on the CPU. It is
// what oneDNN asks for on this machine, and the buffers of the present number of threads; nothing
// is computed. Without it a step on `meta` takes the same bytes on every machine. Thread safety:
// acts on the thread that made it. Several may be nested.
class KernelMemoryScope {
 public:
  explicit KernelMemoryScope(bool counts = true);  // false: changes nothing
  ~KernelMemoryScope();
  KernelMemoryScope(const KernelMemoryScope&) = delete;
  KernelMemoryScope& operator=(const KernelMemoryScope&) = delete;

 private:
  bool previous_;
};

// Is `device` meta, and does a scope of this thread live?
bool counts_kernel_memory(Device device);

}  // namespace frugal::ops
