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
// less. The default is 512 MiB.
void set_convolution_workspace(int64_t bytes);
int64_t convolution_workspace();

}  // namespace frugal::ops
