#include "ops/optimizer/clip.h"

#include "core/finite.h"
#include "ops/cuda/cuda_sum.h"
#include "ops/cuda/cuda_tensors.h"

namespace frugal::ops {
namespace {

using ClipTable = cuda::TensorTable<1, char>;

std::vector<cuda::TensorEntry<1, char>> entries_of(const std::vector<Tensor>& tensors) {
  std::vector<cuda::TensorEntry<1, char>> entries;
  for (const Tensor& x : tensors) entries.push_back({{&x}, 0});
  return entries;
}

__global__ void square_tensors_kernel(const ClipTable table, double* partial) {
  for (int64_t chunk = blockIdx.x; chunk < table.chunks; chunk += gridDim.x) {
    const auto row = cuda::row_of(table, chunk);
    const int64_t begin = (chunk - row.first_chunk) * cuda::kTensorChunk;
    const int64_t end = std::min(begin + cuda::kTensorChunk, row.n);
    double sum = 0;
#pragma unroll 4
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
      sum += static_cast<double>(row.at[0][i]) * static_cast<double>(row.at[0][i]);
    sum = cuda::block_sum(sum);
    if (threadIdx.x == 0) partial[chunk] = sum;
  }
}

struct StoreRoot {
  double* root;
  __device__ void operator()(int64_t, double total) const { *root = sqrt(total); }
};

__global__ void clip_tensors_kernel(const ClipTable table, const double* norm, double most) {
  const double exact = clip_factor(*norm, most);
  if (exact == 1) return;
  const auto factor = static_cast<float>(exact);
  for (int64_t chunk = blockIdx.x; chunk < table.chunks; chunk += gridDim.x)
    cuda::for_chunk<1, 0b1, 0b1>(cuda::row_of(table, chunk), chunk,
                                 [&](float(&x)[1]) { x[0] *= factor; });
}

// Runs in one block.
template <class T>
__global__ void flag_kernel(const float* loss, const T* target, int64_t n, T ignored,
                            const double* norm, uint8_t* flag) {
  int counts = 0;
  if (!is_finite(static_cast<double>(*loss))) {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const bool is_label = std::is_same_v<T, float>;
      if (!(is_label ? target[i] < 0 : target[i] == ignored)) counts = 1;
    }
  }
  counts = cuda::across_block(counts, 0, cuda::Max<int>{});
  if (threadIdx.x == 0) *flag = counts == 0 && (norm == nullptr || is_finite(*norm)) ? 1 : 0;
}

}  // namespace

void joint_norm_kernel(Cuda, const std::vector<Tensor>& tensors, const Tensor& norm) {
  int64_t chunks = 0;
  for (const Tensor& x : tensors)
    chunks += (x.numel() + cuda::kTensorChunk - 1) / cuda::kTensorChunk;
  const Device device = norm.device();
  if (chunks == 0) return cuda::zero_bytes(norm.raw(), norm.nbytes());
  const Tensor partial = Tensor::empty({chunks}, DType::f64, device);
  double* at = partial.mut<double>();
  cuda::with_tables(entries_of(tensors), [&](const ClipTable& table) {
    cuda::launch(square_tensors_kernel, {cuda::blocks_for(table.chunks, 1)}, table, at);
    at += table.chunks;
  });
  cuda::sum_over<double>(device, 1, chunks, 1,
                         cuda::PartialSums<double>{chunks, 1, partial.data<double>()},
                         StoreRoot{norm.mut<double>()});
}

void clip_to_kernel(Cuda, const std::vector<Tensor>& tensors, const Tensor& norm, double most) {
  cuda::with_tables(entries_of(tensors), [&](const ClipTable& table) {
    cuda::launch(clip_tensors_kernel, {cuda::blocks_for(table.chunks, 1)}, table,
                 norm.data<double>(), most);
  });
}

void may_step_kernel(Cuda, const Tensor& loss, const Tensor& target, int64_t ignored,
                     const Tensor& norm, const Tensor& flag) {
  const double* of_gradients = norm.defined() ? norm.data<double>() : nullptr;
  const cuda::Grid one{dim3(1)};
  if (target.dtype() == DType::f32)
    cuda::launch(flag_kernel<float>, one, loss.data<float>(), target.data<float>(), target.numel(),
                 0.0f, of_gradients, flag.mut<uint8_t>());
  else
    cuda::launch(flag_kernel<int64_t>, one, loss.data<float>(), target.data<int64_t>(),
                 target.numel(), ignored, of_gradients, flag.mut<uint8_t>());
}

}  // namespace frugal::ops
