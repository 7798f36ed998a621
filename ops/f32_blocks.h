// Kernels of the CPU that compute in f32, over tensors that are f32 or bf16. Internal.
#pragma once
#include <algorithm>
#include <array>
#include <functional>
#include <initializer_list>
#include <span>
#include <vector>

#include "core/parallel.h"
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

// Calls f(in, out, first, rows) for the rows of contiguous tensors [rows, width] of one real dtype
// or bf16: as for_f32_rows(), or for f64 with pointers to f64. No call has rows of two blocks.
template <class F>
void for_real_rows(int64_t rows, int64_t width, int64_t block, int64_t grain,
                   std::initializer_list<const Tensor*> in,
                   std::initializer_list<const Tensor*> out, const F& f) {
  if ((*in.begin())->dtype() != DType::f64)
    return for_f32_rows(rows, width, block, grain, in, out,
                        [&](const F32Rows& some) { f(some.in, some.out, some.first, some.rows); });
  const int64_t count = (rows + block - 1) / block, least = std::max<int64_t>(1, grain / block);
  parallel_for(0, count, least, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i * block;
      std::array<const double*, 4> from = {};
      std::array<double*, 3> to = {};
      for (size_t k = 0; k < in.size(); ++k)
        from[k] = std::data(in)[k]->template data<double>() + first * width;
      for (size_t k = 0; k < out.size(); ++k)
        to[k] = std::data(out)[k]->template mut<double>() + first * width;
      f(from, to, first, std::min(block, rows - first));
    }
  });
}

// y = factor * x, for tensors of one real dtype and shape that are contiguous.
void scale_into(const Tensor& x, double factor, const Tensor& y);

// Stands in for the bf16 operands of a kernel that takes whole f32 tensors: copies in f32, which
// are workspace. finish() rounds the outputs to the bf16 tensors for which they stand.
class InF32 {
 public:
  // x, or a copy of it in f32 if it is bf16. A copy of a transposed matrix is transposed, too.
  Tensor read(const Tensor& x) const;
  // y, or a new f32 tensor of its shape if it is bf16, with its values if `keeps`.
  Tensor write(const Tensor& y, bool keeps = false);
  void finish() const;

 private:
  std::vector<std::pair<Tensor, Tensor>> outputs_;  // bf16, f32
};

// Where a step on `meta` counts what kernels of the CPU take (ops/kernel_memory.h): takes for a
// moment what InF32 takes for a kernel with these operands, of which `x` is one, and workspace of
// the shapes that the kernel has beside it.
void count_in_f32(const Tensor& x, std::initializer_list<const Tensor*> read,
                  std::initializer_list<const Tensor*> written,
                  std::initializer_list<Shape> own = {});

// Runs a kernel that takes whole f32 tensors, and whose outputs at place i of the first dimension
// follow from the inputs at i: on slices of that dimension, as InF32 gives them. So the copies are
// few beside the tensors. All tensors have the same size(0); those that are not bf16 are sliced as
// they are, and undefined ones stay.
void in_f32_slices(
    const std::vector<Tensor>& in, const std::vector<Tensor>& out,
    const std::function<void(const std::vector<Tensor>& in, const std::vector<Tensor>& out)>& f);

}  // namespace frugal::ops
