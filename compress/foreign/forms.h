// How frugal.torch keeps tensors of another library: the group quantizer, and three forms that have
// no loss or round elsewhere than at the values. On the CPU.
#pragma once
#include <memory>
#include <vector>

#include "compress/quantize/quantize.h"
#include "core/rng.h"

namespace frugal::python {

// What is kept of one tensor. Thread safety: unpack() may run on several threads.
class Kept {
 public:
  virtual ~Kept() = default;
  virtual int64_t bytes() const = 0;
  virtual Tensor unpack() const = 0;  // flat, contiguous, of the packed dtype
  // 1 where the packed value was positive and 0 elsewhere, in the packed dtype. Errors: what is
  // kept does not tell signs.
  virtual Tensor unpack_positive() const;
};

struct GroupOptions {
  int bits = 4;
  int64_t columns = 0;    // groups by column of [n / columns, columns]; 0: of neighbours in memory
  bool positive = false;  // the codes tell exactly which values are positive; needs 2 bits
  uint64_t seed = 0, step = 0, seq = 0;  // the random stream
};
// Codes in groups, rounded without bias. `values`: contiguous and floating.
// Errors: those of Quantizer; columns that do not divide the number of values.
std::unique_ptr<Kept> keep_groups(const Tensor& values, const GroupOptions& options);

// One bit for each value of a tensor that has at most two values; null: it has more, or a NaN.
std::unique_ptr<Kept> keep_two_values(const Tensor& values);
// One bit for each value: is it positive?
std::unique_ptr<Kept> keep_positive(const Tensor& values);

// Each of `values` becomes one of `levels`, which rise, rounded without bias. Codes have `width`
// bits, 1, 2, 4 or 8, and unpack() gives table[code]. So `table` says what stands for a level, and
// what is unbiased is the level. `values`: f32, contiguous. Values beyond the last levels become
// these. Null: a value is not finite.
std::unique_ptr<Kept> keep_levels(const Tensor& values, const std::vector<float>& levels, int width,
                                  std::vector<float> table, DType dtype, RngKey key);

// Where the windows of a pooling lie in planes of [height, width].
struct Windows {
  int64_t height = 1, width = 1, out_height = 1, out_width = 1;
  int64_t kernel[2] = {1, 1}, stride[2] = {1, 1}, padding[2] = {0, 0}, dilation[2] = {1, 1};
};
// The places of maxima within their windows. `indices`: contiguous, i64, of any number of planes
// [out_height, out_width], each index into its plane of [height, width]. Null: an index is at no
// place of its window, or windows have more than 256 places.
std::unique_ptr<Kept> keep_windows(const Tensor& indices, const Windows& windows);

}  // namespace frugal::python
