// Tensor cores: the 16 by 8 by 16 product of bf16 and the 16 by 8 by 8 one of tf32 that one warp
// does, and how operands come from shared memory. With g = lane / 4 and t = lane % 4, a lane holds
//   of bf16: a [16, 16]: rows g and g + 8 at columns 2t, 2t + 1, then both at columns 2t + 8, 2t +
//   9
//            b [16, 8]:  rows 2t, 2t + 1 of column g, then rows 2t + 8, 2t + 9
//   of tf32: a [16, 8]:  rows g and g + 8 at column t, then both at column t + 4
//            b [8, 8]:   rows t and t + 4 of column g
//   of both: c [16, 8]:  row g at columns 2t, 2t + 1, then row g + 8
// For .cu files; sm_80 and later.  Ref: PTX ISA, mma.m16n8k16, mma.m16n8k8 and ldmatrix.
#pragma once
#include "core/cuda/cuda_kernel.h"

namespace frugal::cuda {

// Two floats rounded to bf16. The first is in the lower half of the word.
__device__ __forceinline__ uint32_t pack_bf16(float first, float second) {
#ifdef FRUGAL_CUDA_EMULATOR
  return static_cast<uint32_t>(store<BFloat16>(second).bits) << 16 | store<BFloat16>(first).bits;
#else
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  return both;
#endif
}

// Loads four matrices [8, 8]. Lane l gives the address of row l % 8 of matrix l / 8, which has 16
// bytes. to[i] gets the elements (g, 2t) and (g, 2t + 1) of matrix i, or with `transposed` (2t, g)
// and (2t + 1, g).
template <bool transposed>
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], const BFloat16* row) {
#ifdef FRUGAL_CUDA_EMULATOR
  const int g = emulator::lane() / 4, t = emulator::lane() % 4;
  for (int i = 0; i < 4; ++i) {
    const BFloat16* first = __shfl_sync(kAllLanes, row, 8 * i + (transposed ? 2 * t : g));
    const BFloat16* second = __shfl_sync(kAllLanes, row, 8 * i + (transposed ? 2 * t + 1 : g));
    to[i] = static_cast<uint32_t>(second[transposed ? g : 2 * t + 1].bits) << 16 |
            first[transposed ? g : 2 * t].bits;
  }
#else
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
#endif
}

// (c0, c1, c2, c3) += a b
__device__ __forceinline__ void multiply_add(float& c0, float& c1, float& c2, float& c3,
                                             const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#ifdef FRUGAL_CUDA_EMULATOR
  struct Left {
    uint32_t at[4];
  };
  struct Right {
    uint32_t at[2];
  };
  const auto dot = [](uint32_t x, uint32_t y) {
    return __uint_as_float(x << 16) * __uint_as_float(y << 16) +
           __uint_as_float(x & 0xffff0000u) * __uint_as_float(y & 0xffff0000u);
  };
  const int g = emulator::lane() / 4, t = emulator::lane() % 4;
  for (int q = 0; q < 4; ++q) {
    const Left x = __shfl_sync(kAllLanes, Left{{a[0], a[1], a[2], a[3]}}, 4 * g + q);
    const Right y = __shfl_sync(kAllLanes, Right{{b0, b1}}, 8 * t + q);
    const Right z = __shfl_sync(kAllLanes, Right{{b0, b1}}, 8 * t + 4 + q);
    c0 += dot(x.at[0], y.at[0]) + dot(x.at[2], y.at[1]);
    c1 += dot(x.at[0], z.at[0]) + dot(x.at[2], z.at[1]);
    c2 += dot(x.at[1], y.at[0]) + dot(x.at[3], y.at[1]);
    c3 += dot(x.at[1], z.at[0]) + dot(x.at[3], z.at[1]);
  }
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// Rounds as tf32 does: to the nearest number with 10 bits of mantissa, ties away from 0.
__device__ __forceinline__ float round_tf32(float x) {
#ifdef FRUGAL_CUDA_EMULATOR
  const uint32_t bits = __float_as_uint(x);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  return finite ? __uint_as_float((bits + 0x1000u) & 0xffffe000u) : x;
#else
  uint32_t rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
  return __uint_as_float(rounded);
#endif
}

// (c0, c1, c2, c3) += a b of tf32
__device__ __forceinline__ void multiply_add(float& c0, float& c1, float& c2, float& c3,
                                             const float (&a)[4], float b0, float b1) {
#ifdef FRUGAL_CUDA_EMULATOR
  struct Left {
    float at[4];
  };
  struct Right {
    float at[2];
  };
  const int g = emulator::lane() / 4, t = emulator::lane() % 4;
  for (int q = 0; q < 4; ++q) {
    const Left x = __shfl_sync(kAllLanes, Left{{a[0], a[1], a[2], a[3]}}, 4 * g + q);
    const Right y = __shfl_sync(kAllLanes, Right{{b0, b1}}, 8 * t + q);
    const Right z = __shfl_sync(kAllLanes, Right{{b0, b1}}, 8 * t + 4 + q);
    c0 += x.at[0] * y.at[0] + x.at[2] * y.at[1];
    c1 += x.at[0] * z.at[0] + x.at[2] * z.at[1];
    c2 += x.at[1] * y.at[0] + x.at[3] * y.at[1];
    c3 += x.at[1] * z.at[0] + x.at[3] * z.at[1];
  }
#else
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
        "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
#endif
}

}  // namespace frugal::cuda
