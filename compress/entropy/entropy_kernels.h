// The work of the entropy stage on bytes. Every device gives the same bytes. Internal.
#pragma once
#include <vector>

#include "compress/entropy/entropy_plan.h"
#include "core/device.h"

namespace frugal::compress::entropy {

// Uninitialised bytes.
inline Tensor byte_tensor(int64_t size, Category category, Device device = kCpu) {
  const CategoryScope scope(category);
  return Tensor::empty({size}, DType::u8, device);
}

// The coded payload, category `packed`. Undefined if coding would save a smaller share than
// min_saving, as far as a sample or all codes say. `plain`: a payload described by `map`. On the
// CPU it is overwritten if it is coded.
Tensor encode_kernel(Cpu, const Tensor& plain, const CodeMap& map, double min_saving);
// The host waits once, so this cannot be captured (Errors). The device tries the plan that it
// expects of the host. foresees: false, for tests, leaves that trial out. Then the host waits
// twice, as it does if it plans otherwise.
Tensor encode_kernel(Cuda, const Tensor& plain, const CodeMap& map, double min_saving,
                     bool foresees = true);

// Writes the decoded payload to `plain`. On CUDA the host does not wait, but this cannot be
// captured either (Errors).
void decode_kernel(Cpu, const Tensor& coded, const CodeMap& map, const Tensor& plain);
void decode_kernel(Cuda, const Tensor& coded, const CodeMap& map, const Tensor& plain);

}  // namespace frugal::compress::entropy
