// The work of the entropy stage on bytes. Every device gives the same bytes. Internal.
#pragma once
#include <vector>

#include "compress/entropy/entropy_plan.h"
#include "core/device.h"

namespace frugal::compress::entropy {

// Counts how often each byte occurs, for each table. Returns nothing if a sample shows that coding
// would save a smaller share of the codes than min_saving. `plain`: a payload described by `map`.
std::vector<rans::Histogram> count_kernel(Cpu, const Tensor& plain, const CodeMap& map,
                                          double min_saving);
std::vector<rans::Histogram> count_kernel(Cuda, const Tensor& plain, const CodeMap& map,
                                          double min_saving);

// The coded payload, category `packed`. On the CPU it overwrites `plain`. plans: one for each
// table.
Tensor encode_kernel(Cpu, const Tensor& plain, const CodeMap& map, const std::vector<Plan>& plans);
Tensor encode_kernel(Cuda, const Tensor& plain, const CodeMap& map, const std::vector<Plan>& plans);

// Writes the decoded payload to `plain`. On CUDA the host does not wait here; it waits once in
// counting and once in encoding, so those cannot be recorded (Errors).
void decode_kernel(Cpu, const Tensor& coded, const CodeMap& map, const Tensor& plain);
void decode_kernel(Cuda, const Tensor& coded, const CodeMap& map, const Tensor& plain);

}  // namespace frugal::compress::entropy
