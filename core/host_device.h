// FRUGAL_HD marks functions that run in host loops and in CUDA kernels. They are always inlined: a
// loop that is compiled for a wider instruction set would otherwise call code of the baseline set.
#pragma once

#ifdef __CUDACC__
#define FRUGAL_HD __host__ __device__ __forceinline__
#else
#define FRUGAL_HD inline __attribute__((always_inline))
#endif
