// The entropy stage's work on bytes. Every device gives the same. Internal.
#pragma once
#include <vector>

#include "compress/entropy/entropy_plan.h"
#include "core/device.h"

namespace frugal::compress::entropy {

// How often each byte is there, by table; nothing where a sample says that coding would save a
// smaller share of the codes than min_saving. `plain`: a payload as `map` says.
std::vector<rans::Histogram> count_kernel(Cpu, const Tensor& plain, const CodeMap& map,
                                          double min_saving);
std::vector<rans::Histogram> count_kernel(Cuda, const Tensor& plain, const CodeMap& map,
                                          double min_saving);

// The coded payload, category `packed`. On the CPU the bytes of `plain` are lost. plans: by table.
Tensor encode_kernel(Cpu, const Tensor& plain, const CodeMap& map, const std::vector<Plan>& plans);
Tensor encode_kernel(Cuda, const Tensor& plain, const CodeMap& map, const std::vector<Plan>& plans);

// Writes the payload that was coded to `plain`. On CUDA the host does not wait; it does where it
// counts and where it encodes, once each, so that none of these can be recorded (Errors).
void decode_kernel(Cpu, const Tensor& coded, const CodeMap& map, const Tensor& plain);
void decode_kernel(Cuda, const Tensor& coded, const CodeMap& map, const Tensor& plain);

}  // namespace frugal::compress::entropy
