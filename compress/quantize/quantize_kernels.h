// The quantizer's kernels. CPU: Highway, the instruction set chosen at run time; every one gives
// the bytes of quantize_reference.h.
#pragma once
#include <string>
#include <vector>

#include "compress/quantize/nonfinite_count.h"
#include "compress/quantize/quantize_split.h"
#include "core/device.h"
#include "core/host_device.h"

namespace frugal::compress {

struct PackJob {
  const void* x = nullptr;  // contiguous values, from row group `first` on
  DType dtype = DType::f32;
  uint8_t* payload = nullptr;  // layout.bytes()
  GroupLayout layout;
  CodeStream stream;
  bool stochastic = true;
  NonfiniteCount* nonfinite = nullptr;  // counts up
  const uint8_t* mask = nullptr;  // layout.split: the bits to carry, from row group `first` on
  SplitWeights weights;
  // The row groups to pack; `count` negative: all of them. The CPU alone packs less than all.
  int64_t first = 0, count = -1;
};

// The element of the view that job.x begins at.
inline int64_t first_element(const PackJob& job) {
  return job.first * job.layout.group_rows * job.layout.cols;
}

struct UnpackJob {
  const uint8_t* payload = nullptr;
  void* x = nullptr;  // points to element `begin`
  DType dtype = DType::f32;
  GroupLayout layout;
  int64_t begin = 0, end = 0;  // elements of the view to unpack; `begin` starts a block of 8 rows
  SplitWeights weights;        // layout.split
  // layout.split, unless null: [3, cols], gives (x - a[0]) a[1] + a[2] for elements of class 1 and
  // 0 for others.
  const float* affine = nullptr;
  const void* residual = nullptr;  // with `affine`, on the CPU: like x, added in class 1
  bool dithered = false;           // what was added before truncation is taken away again
  CodeStream stream;               // the one that packed: of dithered codes, or with drawn rows
};

void quantize_kernel(Cpu, const PackJob& job);
void quantize_kernel(Cuda, const PackJob& job);
void dequantize_kernel(Cpu, const UnpackJob& job);
void dequantize_kernel(Cuda, const UnpackJob& job);

// The kernels for layout.split. split_sign_kernel() unpacks the bits alone: `x` is then the bytes
// of a mask, from the row of `begin` on.
void split_quantize_kernel(Cpu, const PackJob& job);
void split_quantize_kernel(Cuda, const PackJob& job);
void split_dequantize_kernel(Cpu, const UnpackJob& job);
void split_dequantize_kernel(Cuda, const UnpackJob& job);
void split_sign_kernel(Cpu, const UnpackJob& job);
void split_sign_kernel(Cuda, const UnpackJob& job);

// Makes byte k of a mask of `to_cols` columns and `numel` bits, those of another one from bit
// `begin` on, whose columns are `cols`.
struct MovedBits {
  const uint8_t* from;
  int64_t cols, begin;
  uint8_t* to;
  int64_t to_cols, numel;

  FRUGAL_HD void operator()(int64_t k) const {
    uint32_t byte = 0;
    for (int64_t r = 0; r < 8; ++r) {
      const int64_t i = (k / to_cols * 8 + r) * to_cols + k % to_cols;
      if (i >= numel) break;
      const int64_t at = begin + i, row = at / cols;
      byte |= (uint32_t{from[row / 8 * cols + at % cols]} >> (row % 8) & 1u) << r;
    }
    to[k] = static_cast<uint8_t>(byte);
  }
};
void move_bits_kernel(Cpu, const MovedBits& moved, int64_t bytes);
void move_bits_kernel(Cuda, const MovedBits& moved, int64_t bytes);

// PackedPass::Variance of the job's elements, f32, f64 or bf16, not split.
void variance_kernel(Cpu, const UnpackJob& job);
void variance_kernel(Cuda, const UnpackJob& job);

// For tests: names of the instruction sets this machine can run, best first, and a choice of one
// ("" chooses freely again). Not thread-safe.
std::vector<std::string> simd_targets();
void use_simd_target(const std::string& name);

}  // namespace frugal::compress
