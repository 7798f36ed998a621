#include "ops/graph/segment.h"

#include <limits>

#include "core/cuda/cuda_kernel.h"
#include "ops/dense/copy.h"

namespace frugal::ops {
namespace {

using cuda::load;
using cuda::store;

// Rows as runs of U: 16 bytes, or single elements.
template <class U>
struct Gather {
  int64_t runs, rows;  // in a row; of x
  U outside;
  const U* x;
  const int64_t* index;
  U* y;
  __device__ void operator()(int64_t i) const {
    const int64_t row = index[i / runs];
    y[i] = row >= 0 && row < rows ? x[row * runs + i % runs] : outside;
  }
};

struct Count {
  const int64_t* index;
  int* counts;
  __device__ void operator()(int64_t e) const { atomicAdd(counts + index[e], 1); }
};
template <class T>
struct Share {
  int64_t width;
  const T* dy;
  const int64_t* index;
  const int* counts;
  T* dx;
  __device__ void operator()(int64_t i) const {
    const int64_t row = index[i / width];
    dx[i] = store<T>(load(dy[row * width + i % width]) / static_cast<float>(counts[row]));
  }
};

template <class Entry>
struct Elements {
  int64_t width;
  const int64_t* ptr;
  const int32_t* from;
  const Entry* entry;
  int32_t* element;
  __device__ void operator()(int64_t i) const {
    const int64_t begin = ptr[i / width];
    element[i] = begin == ptr[i / width + 1] ? -1 : from[begin + static_cast<int64_t>(entry[i])];
  }
};

// Each element belongs to one row, so no two threads write to one place.
template <class T>
struct Scatter {
  int64_t width;
  const T* dy;
  const int32_t* element;
  T* dx;
  __device__ void operator()(int64_t i) const {
    if (element[i] >= 0) dx[element[i] * width + i % width] = dy[i];
  }
};

template <class T>
struct ShiftedExp {
  int64_t width;
  const T *x, *largest;
  const int64_t* index;
  T* y;
  __device__ void operator()(int64_t i) const {
    const int64_t at = index[i / width] * width + i % width;
    y[i] = store<T>(expf(load(x[i]) - load(largest[at])));
  }
};
template <class T>
struct Divide {
  int64_t width;
  T* y;
  const T* total;
  const int64_t* index;
  __device__ void operator()(int64_t i) const {
    y[i] = store<T>(load(y[i]) / load(total[index[i / width] * width + i % width]));
  }
};
template <class T>
struct TakeMean {
  int64_t width;
  T* dx;
  const T *y, *total;
  const int64_t* index;
  __device__ void operator()(int64_t i) const {
    const int64_t at = index[i / width] * width + i % width;
    dx[i] = store<T>(load(dx[i]) - load(y[i]) * load(total[at]));
  }
};

}  // namespace

void gather_rows_kernel(Cuda, const Tensor& x, const Tensor& index, const Tensor& y) {
  if (y.numel() == 0) return;
  const int64_t width = x.size(1), rows = x.size(0);
  const auto* row = index.data<int64_t>();
  cuda::with_activation(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    using Run = cuda::Pack<T>;
    const T nan(std::numeric_limits<float>::quiet_NaN());
    if (width % Run::kSize == 0 && cuda::is_packable(x.raw()) && cuda::is_packable(y.raw())) {
      Run outside;
      for (T& at : outside.at) at = nan;
      cuda::for_each(y.numel() / Run::kSize, Gather<Run>{width / Run::kSize, rows, outside,
                                                         static_cast<const Run*>(x.raw()), row,
                                                         static_cast<Run*>(y.raw())});
    } else {
      cuda::for_each(y.numel(), Gather<T>{width, rows, nan, x.data<T>(), row, y.template mut<T>()});
    }
  });
}

void segment_mean_backward_kernel(Cuda, const Tensor& dy, const Tensor& index, const Tensor& dx) {
  const CategoryScope scope(Category::workspace);
  const Tensor counts = Tensor::zeros({dy.size(0)}, DType::i32, dy.device());
  const auto* row = index.data<int64_t>();
  cuda::for_each(index.numel(), Count{row, counts.mut<int32_t>()});
  cuda::with_activation(dx.dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::for_each(dx.numel(),
                   Share<T>{dx.size(1), dy.data<T>(), row, counts.data<int32_t>(), dx.mut<T>()});
  });
}

void segment_elements_kernel(Cuda, const Csr& groups, const Tensor& entry, const Tensor& element) {
  const auto run = [&](auto zero) {
    using Entry = decltype(zero);
    cuda::for_each(element.numel(), Elements<Entry>{element.size(1), groups.row_ptr.data<int64_t>(),
                                                    groups.col.data<int32_t>(), entry.data<Entry>(),
                                                    element.mut<int32_t>()});
  };
  if (entry.dtype() == DType::u8) return run(uint8_t{});
  run(int32_t{});
}

void segment_max_backward_kernel(Cuda, const Tensor& dy, const Tensor& element, const Tensor& dx) {
  fill_kernel(Cuda{}, dx, 0);
  cuda::with_activation(dy.dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::for_each(dy.numel(),
                   Scatter<T>{dy.size(1), dy.data<T>(), element.data<int32_t>(), dx.mut<T>()});
  });
}

void segment_exp_kernel(Cuda, const Tensor& x, const Tensor& largest, const Tensor& index,
                        const Tensor& y) {
  cuda::with_activation(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::for_each(x.numel(), ShiftedExp<T>{x.size(1), x.data<T>(), largest.data<T>(),
                                            index.data<int64_t>(), y.mut<T>()});
  });
}

void segment_divide_kernel(Cuda, const Tensor& y, const Tensor& total, const Tensor& index) {
  cuda::with_activation(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::for_each(y.numel(),
                   Divide<T>{y.size(1), y.mut<T>(), total.data<T>(), index.data<int64_t>()});
  });
}

void segment_softmax_backward_kernel(Cuda, const Tensor& dx, const Tensor& y, const Tensor& total,
                                     const Tensor& index) {
  cuda::with_activation(dx.dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::for_each(dx.numel(), TakeMean<T>{dx.size(1), dx.mut<T>(), y.data<T>(), total.data<T>(),
                                           index.data<int64_t>()});
  });
}

}  // namespace frugal::ops
