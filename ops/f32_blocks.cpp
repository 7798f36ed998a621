#include "ops/f32_blocks.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "core/parallel.h"
#include "ops/dense/copy.h"
#include "ops/kernel_memory.h"
#include "ops/shared_kernels.h"
#include "ops/simd/convert_loops.h"

namespace frugal::ops {
namespace {

// The rows of a buffer: about 1,024 elements. At least four rows, unless they are long, because
// sums over rows take four at a time.
int64_t buffered_rows(int64_t width) {
  if (width > 1 << 11) return 1;
  return std::max<int64_t>(rows_at_once(1 << 10, width) / 4 * 4, 4);
}

constexpr int64_t kSliceElements = 1 << 18;  // all copies of a slice have about so many

bool is_bf16(const Tensor& x) { return x.defined() && x.dtype() == DType::bf16; }

}  // namespace

void for_f32_rows(int64_t rows, int64_t width, int64_t block, int64_t grain,
                  std::initializer_list<const Tensor*> in, std::initializer_list<const Tensor*> out,
                  const std::function<void(const F32Rows&)>& f) {
  F32Rows whole;
  FRUGAL_ASSERT(in.size() <= whole.in.size() && out.size() <= whole.out.size());
  bool buffers = false;
  for (const auto& list : {in, out})
    for (const Tensor* x : list) buffers = buffers || is_bf16(*x);
  const int64_t step = buffers ? std::min(block, buffered_rows(width)) : block;
  const auto blocks_of = [&](int64_t begin, int64_t end, float* room) {
    for (int64_t first = begin; first < end; first += step) {
      F32Rows some;
      some.first = first;
      some.rows = std::min(step, end - first);
      const int64_t at = first * width, n = some.rows * width;
      float* buffer = room;
      const auto take = [&] { return std::exchange(buffer, buffer + step * width); };
      for (size_t i = 0; i < in.size(); ++i) {
        const Tensor& x = *std::data(in)[i];
        if (is_bf16(x)) {
          float* const to = take();
          simd::widen(x.data<BFloat16>() + at, to, n);
          some.in[i] = to;
        } else if (x.defined()) {
          some.in[i] = x.data<float>() + at;
        }
      }
      for (size_t i = 0; i < out.size(); ++i) {
        const Tensor& y = *std::data(out)[i];
        if (is_bf16(y))
          some.out[i] = take();
        else if (y.defined())
          some.out[i] = y.mut<float>() + at;
      }
      f(some);
      for (size_t i = 0; i < out.size(); ++i) {
        const Tensor& y = *std::data(out)[i];
        if (is_bf16(y)) simd::narrow(some.out[i], y.mut<BFloat16>() + at, n);
      }
    }
  };
  const int64_t count = (rows + block - 1) / block, least = std::max<int64_t>(1, grain / block);
  const int64_t size =
      buffers ? step * width * static_cast<int64_t>(in.size() + out.size()) : int64_t{0};
  // Each range has a buffer of its own.
  const Tensor room = workspace({parallel_ranges(count, least), size}, DType::f32);
  std::atomic<int64_t> next = 0;
  parallel_for(0, count, least, [&](int64_t begin, int64_t end) {
    float* const own = size > 0 ? room.mut<float>() + next++ * size : nullptr;
    for (int64_t i = begin; i < end; ++i)
      blocks_of(i * block, std::min(rows, (i + 1) * block), own);
  });
}

void scale_into(const Tensor& x, double factor, const Tensor& y) {
  const int64_t n = x.numel();
  if (x.dtype() != DType::f64)
    return for_f32_rows(n, 1, kCopyGrain, kCopyGrain, {&x}, {&y}, [&](const F32Rows& some) {
      const auto times = static_cast<float>(factor);
      for (int64_t i = 0; i < some.rows; ++i) some.out[0][i] = times * some.in[0][i];
    });
  parallel_for(0, n, kCopyGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y.mut<double>()[i] = factor * x.data<double>()[i];
  });
}

Tensor InF32::read(const Tensor& x) const {
  if (!is_bf16(x)) return x;
  const CategoryScope scope(Category::workspace);
  // To lay out a transposed matrix anew would take further copies.
  const int last = x.dim() - 1;
  if (!x.is_contiguous() && last > 0)
    if (const Tensor plain = x.transpose(last - 1, last); plain.is_contiguous())
      return cast(plain, DType::f32).transpose(last - 1, last);
  return cast(x, DType::f32);
}

Tensor InF32::write(const Tensor& y, bool keeps) {
  if (!is_bf16(y)) return y;
  const CategoryScope scope(Category::workspace);
  Tensor wide = keeps ? cast(y, DType::f32) : Tensor::empty(y.shape(), DType::f32, y.device());
  outputs_.emplace_back(y, wide);
  return wide;
}

void InF32::finish() const {
  for (const auto& [to, from] : outputs_) copy_into(to, from);
}

void count_in_f32(const Tensor& x, std::initializer_list<const Tensor*> read,
                  std::initializer_list<const Tensor*> written, std::initializer_list<Shape> own) {
  if (!counts_kernel_memory(x.device())) return;
  InF32 wide;
  std::vector<Tensor> held;
  for (const Tensor* each : read) held.push_back(wide.read(*each));
  for (const Tensor* each : written) held.push_back(wide.write(*each));
  const DType dtype = is_bf16(x) ? DType::f32 : x.dtype();
  for (const Shape& shape : own) held.push_back(workspace(shape, dtype, x.device()));
}

void in_f32_slices(
    const std::vector<Tensor>& in, const std::vector<Tensor>& out,
    const std::function<void(const std::vector<Tensor>& in, const std::vector<Tensor>& out)>& f) {
  const int64_t rows = out[0].size(0);
  int64_t elements = 0;
  for (const auto* list : {&in, &out})
    for (const Tensor& x : *list) elements += is_bf16(x) ? x.numel() : 0;
  // Each thread has a row at least, since some kernels spread nothing but rows over the threads.
  const int64_t step = std::max<int64_t>(
      kSliceElements / std::max<int64_t>(elements / std::max<int64_t>(rows, 1), 1), num_threads());
  for (int64_t begin = 0; begin < rows; begin += step) {
    InF32 wide;
    std::vector<Tensor> from, to;
    const auto sliced = [&](const Tensor& x) {
      return x.defined() ? x.slice(0, begin, std::min(rows, begin + step)) : x;
    };
    for (const Tensor& x : in) from.push_back(wide.read(sliced(x)));
    for (const Tensor& y : out) to.push_back(wide.write(sliced(y)));
    f(from, to);
    wide.finish();
  }
}

}  // namespace frugal::ops
