// Dataset: a number of samples, each by its index. Augmentation and subsets are decorators. All
// tensors are on the host.
#pragma once
#include <cstdint>
#include <memory>

#include "core/named_tensors.h"
#include "core/rng.h"

namespace frugal {

// One image sample: input [H, W, C] f32, label in [0, classes).
struct Sample {
  Tensor input;
  int64_t label = 0;
};

// A batch. All its tensors are in category `input`. The loss leaves out targets of kIgnored.
//   images      input [N, H, W, C] f32, target [N] i64
//   sequences   input [N, T] i64 (token ids), target [N] or [N, T] i64; extras attention_mask and
//               token_type_ids [N, T] i64, if the source has them
//   a graph     input [V, F] f32, target [V] i64; extras edge_index [2, E] i64 (from, to)
struct Batch {
  Tensor input;
  Tensor target;
  NamedTensors extras = {};
  bool held = false;  // the source keeps these tensors after the step
};
constexpr int64_t kIgnored = -100;

// Thread safety: get() and get_into() may be called from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual int64_t classes() const = 0;
  virtual Shape sample_shape() const = 0;  // [H, W, C]

  // Writes sample `index` to out, sample_shape().numel() floats in order H, W, C, and returns its
  // label. Random decorators (augmentation) draw from `key`, so equal keys give equal samples.
  // REQUIRES: index in [0, size()).
  virtual int64_t get_into(int64_t index, RngKey key, float* out) const = 0;

  // Sample `index` as a tensor in category `input`. Errors: index outside [0, size()).
  Sample get(int64_t index, RngKey key = {}) const;
};
using DatasetPtr = std::shared_ptr<const Dataset>;

}  // namespace frugal
