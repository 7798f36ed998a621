// The fixed-point codes of bounded_fixed.h on each device, with the same bytes. Internal.
#pragma once
#include <vector>

#include "compress/bounded/bounded_channels.h"
#include "core/device.h"

namespace frugal::compress::bounded {

// ranges_of(). x is on the device of the tag, here and below. On CUDA the host waits.
std::vector<Range> ranges_kernel(Cpu, const float* x, const View& view, bool zeros);
std::vector<Range> ranges_kernel(Cuda, const float* x, const View& view, bool zeros);

// How the elements of a view are coded.
struct FixedCodes {
  View view;
  Lanes lanes;
  bool masked = false;                 // zeros are stored as masks
  const CodeStream* stream = nullptr;  // stream of stochastic rounding; null: nearest rounding
  int64_t head() const {               // bytes before the blocks
    return view.channels * kCodeBytes + (masked ? 8 * view.blocks() : 0);
  }
};

// The bytes of each block with masks. On CUDA the host waits.
std::vector<int64_t> masked_sizes_kernel(Cpu, const float* x, const FixedCodes& codes);
std::vector<int64_t> masked_sizes_kernel(Cuda, const float* x, const FixedCodes& codes);

// head: the first codes.head() bytes of the payload, on the host.
void pack_fixed_kernel(Cpu, const float* x, const FixedCodes& codes,
                       const std::vector<uint8_t>& head, const Tensor& payload);
void pack_fixed_kernel(Cuda, const float* x, const FixedCodes& codes,
                       const std::vector<uint8_t>& head, const Tensor& payload);

// Writes elements [begin, end), in memory order, to `out`. The host does not wait.
void unpack_fixed_kernel(Cpu, const Tensor& payload, const FixedCodes& codes, int64_t begin,
                         int64_t end, float* out);
void unpack_fixed_kernel(Cuda, const Tensor& payload, const FixedCodes& codes, int64_t begin,
                         int64_t end, float* out);

}  // namespace frugal::compress::bounded
