// Kernels of the CPU that compute in f32, over tensors that are f32 or bf16. Internal.
#pragma once
#include <array>
#include <functional>
#include <initializer_list>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace frugal::ops {

// Some rows of tensors, as f32: where the tensors lie, or in buffers beside bf16. A pointer is null
// where its tensor is undefined.
struct F32Rows {
  std::array<const float*, 4> in = {};
  std::array<float*, 3> out = {};
  int64_t first = 0, rows = 0;
};

// Calls f for blocks of the rows of contiguous tensors [rows, width], of which each is f32, bf16 or
// undefined. `block`: rows of a block at most where all tensors are f32; blocks of bf16 are
// smaller, so that the buffers stay in a cache. Both do not depend on the number of threads.
// `grain`: rows that a thread takes at least. What f writes to `out` is rounded to bf16 where the
// tensor is. An output may be one of the inputs.
void for_f32_rows(int64_t rows, int64_t width, int64_t block, int64_t grain,
                  std::initializer_list<const Tensor*> in, std::initializer_list<const Tensor*> out,
                  const std::function<void(const F32Rows&)>& f);

// y = factor * x, for tensors of one real dtype and shape that are contiguous.
void scale_into(const Tensor& x, double factor, const Tensor& y);

// Stands in for the bf16 operands of a kernel that takes whole f32 tensors: copies in f32, which
// are workspace. finish() rounds the outputs to the bf16 tensors for which they stand.
class InF32 {
 public:
  // x, or a copy of it in f32 if it is bf16.
  Tensor read(const Tensor& x) const;
  // y, or a new f32 tensor of its shape if it is bf16, with its values if `keeps`.
  Tensor write(const Tensor& y, bool keeps = false);
  void finish() const;

 private:
  std::vector<std::pair<Tensor, Tensor>> outputs_;  // bf16, f32
};

// Runs a kernel that takes whole f32 tensors, and whose outputs at place i of the first dimension
// follow from the inputs at i: on slices of that dimension, as InF32 gives them. So the copies are
// few beside the tensors. All tensors have the same size(0); those that are not bf16 are sliced as
// they are, and undefined ones stay.
void in_f32_slices(
    const std::vector<Tensor>& in, const std::vector<Tensor>& out,
    const std::function<void(const std::vector<Tensor>& in, const std::vector<Tensor>& out)>& f);

}  // namespace frugal::ops
