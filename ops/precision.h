// What CUDA's matrix products, convolutions and attention may do to be faster, for the whole
// process. The CPU computes in the dtype it is given.
#pragma once
#include <cstdint>

namespace frugal::ops {

// Of f32 operands: `tf32` lets tensor cores round them to 10 bits of mantissa; sums stay f32. The
// default is `f32`. Operands of bf16 are used as they are.
enum class MatmulPrecision : uint8_t { f32, tf32 };
void set_matmul_precision(MatmulPrecision precision);
MatmulPrecision matmul_precision();

// Whether convolutions give equal bits at every run: the default. Without, cuDNN may add in any
// order.
void set_deterministic(bool deterministic);
bool deterministic();

// The most bytes of workspace that a convolution may take where another way of computing it takes
// less. The default is 512 MiB. Matrix products and attention take no more either.
void set_convolution_workspace(int64_t bytes);
int64_t convolution_workspace();

// The most bytes that a call of CUDA's libraries takes at that limit; they are free again after it.
// Without convolutions no call has a use for more than 32 MiB.
int64_t library_workspace(int64_t limit, bool convolutions);

}  // namespace frugal::ops
