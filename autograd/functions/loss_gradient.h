// The backward pass of losses that keep their gradient. Internal to the functions.
#pragma once
#include <algorithm>

#include "autograd/record.h"
#include "core/integers.h"
#include "ops/dense/copy.h"
#include "ops/dense/inplace.h"
#include "ops/loss/binary_cross_entropy.h"

namespace frugal {

// dy times what slot 0 keeps: d(loss)/d(x). The product is written over the gradient where nobody
// else holds it, as when it was packed. A large gradient that was packed comes in slices.
inline Gradient scaled_gradient(const Backward& b) {
  const SavedTensor& kept = b.slot(0);
  const int64_t n = kept.shape().dim() > 0 ? kept.shape()[0] : 0;
  if (n > 0 && runs_as_cpu(b.dy().device())) {
    const int64_t bytes = kept.shape().numel() / n * static_cast<int64_t>(size_of(b.dtype()));
    const int64_t step = b.slice_items(0, bytes, 1);
    if (step < n)
      return Gradient(
          kept.shape(), kept.unpack_rows({0, 1, n}), step,
          [kept, factor = b.dy(), n](int64_t begin, int64_t end, const Tensor& out) {
            // Few rows at a time, because they are copied.
            const int64_t few = round_up((end - begin) / 8 + 1, 256);
            for (int64_t at = begin; at < end; at += few) {
              const int64_t to = std::min(end, at + few);
              ops::copy_into(out.slice(0, at - begin, to - begin), kept.unpack_rows({at, to, n}));
            }
            ops::scale_inplace(out, factor);
          });
  }
  const bool raw = b.slot(0).is_raw(), sole = b.slot(0).is_sole_owner();
  const Tensor gradient = b.saved(0);
  if (raw ? !sole : !is_sole_owner(gradient))
    return ops::binary_cross_entropy_backward(b.dy(), gradient);  // dy times the gradient
  ops::scale_inplace(gradient, b.dy());
  return gradient;
}

}  // namespace frugal
