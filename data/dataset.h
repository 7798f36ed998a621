// Dataset: size() and get(i). Everything else is a decorator. Host tensors only.
#pragma once
#include <cstdint>
#include <memory>

#include "core/rng.h"
#include "core/tensor.h"

namespace frugal {

// One image sample: input [H, W, C] f32, label in [0, classes).
struct Sample {
  Tensor input;
  int64_t label = 0;
};

// A batch: input [N, H, W, C] f32, target [N] i64; both in category `input`.
struct Batch {
  Tensor input;
  Tensor target;
};

// Thread safety: get() and get_into() may be called from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual int64_t classes() const = 0;
  virtual Shape sample_shape() const = 0;  // [H, W, C]

  // Writes sample `index` to out, sample_shape().numel() floats in order H, W, C, and returns its
  // label; `key` drives any randomness (augmentation), so that equal keys give equal samples.
  // REQUIRES: index in [0, size()).
  virtual int64_t get_into(int64_t index, RngKey key, float* out) const = 0;

  // The same as a tensor, in category `input`. Errors: index outside [0, size()).
  Sample get(int64_t index, RngKey key = {}) const;
};
using DatasetPtr = std::shared_ptr<const Dataset>;

}  // namespace frugal
