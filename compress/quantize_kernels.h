// The quantizer's kernels. CPU: Highway, the instruction set chosen at run time; every one gives
// the bytes of quantize_reference.h.
#pragma once
#include <string>
#include <vector>

#include "compress/quantize_reference.h"
#include "core/device.h"

namespace frugal::compress {

struct PackJob {
  const void* x = nullptr;  // layout.numel contiguous values
  DType dtype = DType::f32;
  uint8_t* payload = nullptr;  // layout.bytes()
  GroupLayout layout;
  CodeStream stream;
  bool stochastic = true;
  std::atomic<int64_t>* nonfinite = nullptr;  // counts up
};

struct UnpackJob {
  const uint8_t* payload = nullptr;
  void* x = nullptr;
  DType dtype = DType::f32;
  GroupLayout layout;
};

void quantize_kernel(Cpu, const PackJob& job);
void quantize_kernel(Cuda, const PackJob& job);
void dequantize_kernel(Cpu, const UnpackJob& job);
void dequantize_kernel(Cuda, const UnpackJob& job);

// For tests: names of the instruction sets this machine can run, best first, and a choice of one
// ("" chooses freely again). Not thread-safe.
std::vector<std::string> simd_targets();
void use_simd_target(const std::string& name);

}  // namespace frugal::compress
