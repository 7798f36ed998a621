// Work on saved tensors in slices of their leading axis.
#pragma once
#include <algorithm>
#include <initializer_list>

#include "autograd/record.h"

namespace frugal {

// Calls f(rows) over the items of the leading axis that the tensors share, of which the first one
// belongs to `variance`. So many items are taken at once as stay in a cache between unpacking and
// use. Without a variance there is one call for all: then the first tensor is whole already, or its
// codec may have to unpack everything for a part.
template <class F>
void for_slices(std::initializer_list<const SavedTensor*> tensors, const Tensor& variance, F f) {
  const int64_t n = (*tensors.begin())->shape()[0];
  int64_t step = n;
  if (variance.defined() && variance.numel() > 0) {
    // On CUDA a cache holds more, and small kernels would wait for their launches.
    const int64_t bytes = int64_t{variance.device().type == DeviceType::cuda ? 32 : 1} << 19;
    step = std::clamp<int64_t>(bytes * n / variance.nbytes(), 1, n);
  }
  for (const SavedTensor* x : tensors)
    if (!x->has_rows({0, step, n})) step = n;
  for (int64_t begin = 0; begin < n; begin += step) f(Rows{begin, std::min(begin + step, n), n});
}

inline Tensor rows_of(const Tensor& x, const Rows& rows) {
  return x.defined() ? x.slice(0, rows.begin, rows.end) : x;
}

// A tensor like x to write to: x itself if nobody else holds it.
inline Tensor over(const Tensor& x) {
  return is_sole_owner(x) ? x : Tensor::empty(x.shape(), x.dtype(), x.device());
}

}  // namespace frugal
