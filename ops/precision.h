// Settings of the whole process: how matrix products, convolutions and attention compute.
#pragma once
#include <cstdint>

namespace frugal::ops {

// For f32 operands: `tf32` lets tensor cores round them to 10 bits of mantissa; sums stay f32. The
// default is `f32`. bf16 operands are used as they are.
enum class MatmulPrecision : uint8_t { f32, tf32 };
void set_matmul_precision(MatmulPrecision precision);
MatmulPrecision matmul_precision();

// Whether matrix products and convolutions on the CPU multiply bf16 as it is, with sums in f32.
// Otherwise they compute in f32 and round what they give to bf16. The default: they do where the
// processor can (x86-64 with AVX-512 BF16, as ONEDNN_MAX_CPU_ISA limits it).
// The processor's products take subnormal numbers as 0.
bool processor_multiplies_bf16();
void set_bf16_products(bool multiplies);  // false: f32 everywhere; true: where the processor can
bool bf16_products();

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
