// Functions that run in host loops and in CUDA kernels. A call would leave the loop of a wider
// instruction set for baseline code, so they are always inlined.
#pragma once

#ifdef __CUDACC__
#define FRUGAL_HD __host__ __device__ __forceinline__
#else
#define FRUGAL_HD inline __attribute__((always_inline))
#endif
