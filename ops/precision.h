// Settings of the whole process that let CUDA's matrix products, convolutions and attention be
// faster. The CPU always computes in the dtype that it is given.
#pragma once
#include <cstdint>

namespace frugal::ops {

// For f32 operands: `tf32` lets tensor cores round them to 10 bits of mantissa; sums stay f32. The
// default is `f32`. bf16 operands are used as they are.
enum class MatmulPrecision : uint8_t { f32, tf32 };
void set_matmul_precision(MatmulPrecision precision);
MatmulPrecision matmul_precision();

// Whether convolutions give equal bits in every run, which is the default. Otherwise cuDNN may add
// in any order.
void set_deterministic(bool deterministic);
bool deterministic();

// The most bytes of workspace that a convolution may take if another way to compute it takes less.
// The default is 512 MiB. Matrix products and attention have the same limit.
void set_convolution_workspace(int64_t bytes);
int64_t convolution_workspace();

// The most bytes that one call of CUDA's libraries takes under that limit. They are free again
// after the call. Without convolutions no call uses more than 32 MiB.
int64_t library_workspace(int64_t limit, bool convolutions);

}  // namespace frugal::ops
