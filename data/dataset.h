// Dataset: a number of samples, each by its index. Augmentation and subsets are decorators. All
// tensors are on the host.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "core/named_tensors.h"
#include "core/rng.h"

namespace frugal {

// One image sample: input [H, W, C] f32, label in [0, classes).
struct Sample {
  Tensor input;
  int64_t label = 0;
};

// What f32 targets are. (i64 targets are classes.)
enum class FloatTargets : uint8_t {
  answers,  // numbers 0 or 1: each class is a yes-or-no question
  shares,   // shares of the classes, with a sum of 1, for samples that were mixed
  values,   // numbers to predict
};

// A batch. All its tensors are in category `input`. The loss leaves out targets of kIgnored; of f32
// targets, rows of kIgnored (values always count).
//   images      input [N, H, W, C] f32, target [N] i64 or [N, classes] f32; for networks that
//               give a class to each pixel [N, H, W] i64
//   rows        input [N, F] f32, target as images'
//   sequences   input [N, T] i64 (token ids), target [N] or [N, T] i64; extras attention_mask,
//               token_type_ids and position_ids [N, T] i64, if the source has them
//   a graph     input [V, F] f32, target [V] i64; extras edge_index [2, E] i64 (from, to)
struct Batch {
  Tensor input;
  Tensor target;
  NamedTensors extras = {};
  bool held = false;  // the source keeps these tensors after the step
  FloatTargets floats = FloatTargets::answers;
  // [N] i64, always on the host: the indices of the samples in the data set of their source, the
  // same in each epoch. Undefined where samples have none: windows of a text, graphs.
  Tensor samples = {};
};
constexpr int64_t kIgnored = -100;

// Targets that are no classes: a sample's label is the index of its row of `width` numbers. The
// allocator does not count them, because they stay on the host when the device is a GPU.
struct TargetRows {
  std::shared_ptr<const std::vector<float>> values = {};  // one row behind the other
  int64_t width = 0;
  FloatTargets kind = FloatTargets::answers;

  TargetRows() = default;  // there are none: labels are classes
  // Errors: a number of values that no whole rows have.
  TargetRows(std::vector<float> rows, int64_t columns, FloatTargets what);
  bool defined() const { return values != nullptr; }
  int64_t count() const { return static_cast<int64_t>(values->size()) / width; }
  const float* row(int64_t index) const { return values->data() + index * width; }
};

// Thread safety: get() and get_into() may be called from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual int64_t classes() const = 0;
  virtual Shape sample_shape() const = 0;  // [H, W, C] or [F]
  virtual TargetRows target_rows() const { return {}; }
  // What the target of a sample is: {} is its label, [H, W] a class for each pixel.
  virtual Shape target_shape() const { return {}; }

  // Writes sample `index` to out, sample_shape().numel() floats in order H, W, C, and returns its
  // label; kIgnored where it does not count. Random decorators (augmentation) draw from `key`, so
  // equal keys give equal samples. REQUIRES: index in [0, size()).
  virtual int64_t get_into(int64_t index, RngKey key, float* out) const = 0;
  // Does what get_into() does, and writes the classes of the pixels, or kIgnored, to `target`:
  // target_shape().numel() of them. REQUIRES: a target_shape() that is not {}.
  virtual void get_pixels_into(int64_t index, RngKey key, float* out, int64_t* target) const;

  // Sample `index` as a tensor in category `input`. Errors: index outside [0, size()).
  Sample get(int64_t index, RngKey key = {}) const;
};
using DatasetPtr = std::shared_ptr<const Dataset>;

}  // namespace frugal
