// Dataset: size() and get(i). Everything else is a decorator. Host tensors only.
#pragma once
#include <cstdint>
#include <memory>

#include "core/rng.h"
#include "core/tensor.h"

namespace frugal {

// One image sample: input [H, W, C] f32 (or u8 before normalisation), label in [0, classes).
struct Sample {
  Tensor input;
  int64_t label = 0;
};

// A batch: input [N, H, W, C] f32, target [N] i64; both in category `input`.
struct Batch {
  Tensor input;
  Tensor target;
};

// Thread safety: get() may be called from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  // Sample `index`; `key` drives any randomness (augmentation), so that equal keys give equal
  // samples.
  virtual Sample get(int64_t index, RngKey key) const = 0;
  virtual int64_t classes() const = 0;
  virtual Shape sample_shape() const = 0;  // [H, W, C]
};
using DatasetPtr = std::shared_ptr<const Dataset>;

}  // namespace frugal
