#include "ops/image/window_codes.h"

#include "core/cuda/cuda_kernel.h"

namespace frugal::ops {
namespace {

// A thread makes one byte.
struct Pack {
  int64_t n;
  int bits;
  const uint8_t* index;
  uint8_t* packed;
  __device__ void operator()(int64_t i) const {
    const int each = 8 / bits;
    int byte = 0;
    for (int k = 0; k < each && i * each + k < n; ++k) byte |= index[i * each + k] << bits * k;
    packed[i] = static_cast<uint8_t>(byte);
  }
};

// A thread reads one byte.
struct Unpack {
  int64_t n;
  int bits;
  const uint8_t* packed;
  uint8_t* index;
  __device__ void operator()(int64_t i) const {
    const int each = 8 / bits, byte = packed[i];
    for (int k = 0; k < each && i * each + k < n; ++k)
      index[i * each + k] = static_cast<uint8_t>(byte >> bits * k & ((1 << bits) - 1));
  }
};

}  // namespace

void pack_window_index_kernel(Cuda, const Tensor& index, int bits, const Tensor& packed) {
  cuda::for_each(packed.numel(),
                 Pack{index.numel(), bits, index.data<uint8_t>(), packed.mut<uint8_t>()});
}

void unpack_window_index_kernel(Cuda, const Tensor& packed, int bits, const Tensor& index) {
  cuda::for_each(packed.numel(),
                 Unpack{index.numel(), bits, packed.data<uint8_t>(), index.mut<uint8_t>()});
}

}  // namespace frugal::ops
