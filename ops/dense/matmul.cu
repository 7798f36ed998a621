#include "ops/dense/matmul.h"

#include <algorithm>

#include "ops/cuda/cublas.h"
#include "ops/cuda/cuda_cast.h"
#include "ops/cuda/cuda_strides.h"
#include "ops/cuda/cuda_sum.h"
#include "ops/dense/copy.h"
#include "ops/dense/inplace.h"
#include "ops/dense/reduce.h"
#include "ops/library_fallbacks.h"

namespace frugal::ops {
namespace {

// The strides of the batch axes of x, for the batch axes of c; 0 where x broadcasts.
Shape batch_strides(const Tensor& x, const Tensor& c) {
  Shape strides;
  for (int axis = 0; axis + 2 < c.dim(); ++axis)
    strides.push_back(x.shape()[axis] == c.shape()[axis] ? x.strides()[axis] : 0);
  return strides;
}

cublas::Operand operand(const Tensor& x) {
  const bool transposed = !x.is_contiguous();
  return {x.raw(), transposed, std::max<int64_t>(1, x.size(transposed ? -2 : -1)), 0};
}

const void* beyond(const void* data, int64_t elements, DType dtype) {
  return static_cast<const char*>(data) + elements * static_cast<int64_t>(size_of(dtype));
}

// c = a b + beta c + bias for all items of the batch. Returns false if the library lacks a kernel.
bool multiply(const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias,
              float beta = 0) {
  Shape batch;
  for (int axis = 0; axis + 2 < c.dim(); ++axis) batch.push_back(c.shape()[axis]);
  const Shape of_a = batch_strides(a, c), of_b = batch_strides(b, c), of_c = batch_strides(c, c);
  const auto axes = cuda::strided<3>("matmul", batch, {&of_a, &of_b, &of_c});

  cublas::Gemm one;
  one.m = c.size(-2), one.n = c.size(-1), one.k = a.size(-1);
  one.input = a.dtype(), one.output = c.dtype();
  one.a = operand(a), one.b = operand(b);
  one.c = c.raw(), one.c_leading = c.is_contiguous() ? one.n : c.strides()[c.dim() - 2];
  one.bias = bias.defined() ? bias.raw() : nullptr;
  one.beta = beta;
  int outer = axes.axes;
  // Items that share b are taken as more rows of a.
  if (outer > 0 && axes.stride[outer - 1][1] == 0 && !one.a.transposed &&
      axes.stride[outer - 1][0] == one.m * one.k)
    one.m *= axes.extent[--outer];
  int64_t inner = 1, step[3] = {};  // items of the innermost axis, which the library walks along
  if (outer > 0) {
    --outer;
    inner = axes.extent[outer];
    for (int o = 0; o < 3; ++o) step[o] = axes.stride[outer][o];
  }
  one.a.stride = step[0], one.b.stride = step[1], one.c_stride = step[2];
  int64_t items = 1;
  for (int axis = 0; axis < outer; ++axis) items *= axes.extent[axis];
  for (int64_t item = 0; item < items; ++item) {
    int64_t rest = item, at[3] = {};
    for (int axis = outer - 1; axis >= 0; --axis) {
      for (int o = 0; o < 3; ++o) at[o] += rest % axes.extent[axis] * axes.stride[axis][o];
      rest /= axes.extent[axis];
    }
    for (int64_t first = 0; first < inner; first += cublas::kMostBatch) {
      cublas::Gemm part = one;
      part.batch = std::min(inner - first, cublas::kMostBatch);
      part.a.data = beyond(a.raw(), at[0] + first * step[0], a.dtype());
      part.b.data = beyond(b.raw(), at[1] + first * step[1], b.dtype());
      part.c = const_cast<void*>(beyond(c.raw(), at[2] + first * step[2], c.dtype()));
      if (!cublas::gemm(part)) return false;
    }
  }
  return true;
}

// kRun columns of one row.
template <int kRun>
struct Columns {
  using Term = float;
  static constexpr int kWidth = kRun;
  int64_t columns;
  const BFloat16* dy;
  __device__ void operator()(int64_t, int64_t row, int64_t column, float* terms) const {
    const BFloat16* from = dy + row * columns + column;
    if constexpr (kRun == 1) {
      terms[0] = cuda::load(from[0]);
    } else {
      const auto pack = cuda::load_pack(from);
#pragma unroll
      for (int i = 0; i < kRun; ++i) terms[i] = cuda::load(pack.at[i]);
    }
  }
};
struct StoreSum {
  float* out;
  __device__ void operator()(int64_t at, double total) const {
    out[at] = static_cast<float>(total);
  }
};

}  // namespace

void linear_backward_bias_kernel(Cuda, const Tensor& dy, const Tensor& dbias) {
  const int64_t rows = dy.size(0), columns = dy.size(1);
  const auto* from = dy.data<BFloat16>();
  const StoreSum store{dbias.mut<float>()};
  constexpr int kRun = cuda::Pack<BFloat16>::kSize;
  if (columns % kRun == 0 && cuda::is_packable(from))
    cuda::sum_over<double>(dy.device(), 1, rows, columns, Columns<kRun>{columns, from}, store);
  else
    cuda::sum_over<double>(dy.device(), 1, rows, columns, Columns<1>{columns, from}, store);
}

void matmul_kernel(Cuda, const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias) {
  if (c.numel() == 0) return;
  if (a.size(-1) == 0) {
    fill_kernel(Cuda{}, c, 0);
    if (bias.defined()) copy_kernel(Cuda{}, c, expand(bias, c.shape()));
    return;
  }
  // A parameter beside bf16 is rounded for the product. The bias is rounded, too, because cuBLASLt
  // wants it in the dtype of c.
  const DType dtype = a.dtype() == b.dtype() ? a.dtype() : DType::bf16;
  const Tensor left = cuda::in_dtype(a, dtype), right = cuda::in_dtype(b, dtype);
  const Tensor row = cuda::in_dtype(bias, c.dtype());
  if (multiply(c, left, right, row)) return;
  note_fallback(fmt::format("cuBLASLt has no kernel for {} {} x {} with a bias", name_of(dtype),
                            a.shape(), b.shape()),
                "the bias is added by another kernel");
  if (!multiply(c, left, right, {})) FRUGAL_ASSERT(false);
  accumulate_row_kernel(Cuda{}, c, bias);
}

void matmul_add_kernel(Cuda, const Tensor& c, const Tensor& a, const Tensor& b) {
  if (c.numel() == 0 || a.size(-1) == 0) return;
  const DType dtype = a.dtype() == b.dtype() ? a.dtype() : DType::bf16;
  if (!multiply(c, cuda::in_dtype(a, dtype), cuda::in_dtype(b, dtype), {}, 1)) FRUGAL_ASSERT(false);
}

}  // namespace frugal::ops
