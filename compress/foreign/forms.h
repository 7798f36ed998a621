// How tensors of another library are kept: the group quantizer, and forms that have no loss or
// round elsewhere than at the values. On the CPU and on CUDA.
//
// On CUDA all work goes to cuda::stream(), with memory that the caller gives, and the host waits
// for nothing. So it never learns there what the values are: functions that return null on the CPU
// because of values say below what they do instead. Codes are those of the CPU, byte for byte.
// Thread safety: functions may run on several threads.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "compress/quantize/quantize.h"
#include "core/rng.h"

namespace frugal::compress::foreign {

// Gives `bytes` bytes: u8 [bytes], contiguous, on the device of the values. None: the engine's
// allocator gives them.
using Memory = std::function<Tensor(int64_t bytes)>;

// What is kept of one tensor.
class Kept {
 public:
  Kept(int64_t elements, DType dtype, Device device)
      : elements_(elements), dtype_(dtype), device_(device) {}
  virtual ~Kept() = default;
  virtual int64_t bytes() const = 0;
  int64_t elements() const { return elements_; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }

  Tensor unpack() const;  // flat, contiguous, of the packed dtype
  // 1 where the packed value was positive and 0 elsewhere, in the packed dtype. Errors: what is
  // kept does not tell signs.
  Tensor unpack_positive() const;
  // Into `out`, contiguous, of the packed dtype, device and number of elements. `scratch` gives
  // memory that may be used again when the work that was queued is done. Errors: anything else.
  void unpack_into(const Tensor& out) const;
  void unpack_positive_into(const Tensor& out, const Memory& scratch = {}) const;

 protected:
  virtual void read(const Tensor& out) const = 0;
  virtual void read_positive(const Tensor& out, const Memory& scratch) const;

 private:
  void check(const Tensor& out) const;
  int64_t elements_;
  DType dtype_;
  Device device_;
};

struct GroupOptions {
  int bits = 4;
  int64_t columns = 0;    // groups by column of [n / columns, columns]; 0: of neighbours in memory
  bool positive = false;  // the codes tell exactly which values are positive; needs 2 bits
  uint64_t seed = 0, step = 0, seq = 0;  // the random stream
};
// Codes in groups, rounded without bias. `values`: contiguous and floating, on CUDA f32, bf16 or
// f16. `scratch`: see Kept::unpack_into().
// Null: a value is not finite, or beyond the limit of its group (compress/quantize/quantize.h). On
// CUDA all values of its group become NaN instead.
// Errors: those of Quantizer; columns that do not divide the number of values.
std::unique_ptr<Kept> keep_groups(const Tensor& values, const GroupOptions& options,
                                  const Memory& memory = {}, const Memory& scratch = {});

// One bit for each value of a tensor that has at most two values; null: it has more, or a NaN.
// On CUDA: of a tensor of bool, or null.
std::unique_ptr<Kept> keep_two_values(const Tensor& values, const Memory& memory = {});
// One bit for each value: is it positive? `values`: contiguous and floating.
std::unique_ptr<Kept> keep_positive(const Tensor& values, const Memory& memory = {});

// Each of `values` becomes one of `levels`, which rise, rounded without bias. Codes have `width`
// bits, 1, 2, 4 or 8, and unpack() gives table[code]. So `table` says what stands for a level, and
// what is unbiased is the level. `values`: f32, contiguous. Values beyond the last levels become
// these. Null: a value is not finite. On CUDA all values of its block of 2048 become NaN instead.
std::unique_ptr<Kept> keep_levels(const Tensor& values, const std::vector<float>& levels, int width,
                                  const std::vector<float>& table, DType dtype, RngKey key,
                                  const Memory& memory = {});

// Where the windows of a pooling lie in planes of [height, width].
struct Windows {
  int64_t height = 1, width = 1, out_height = 1, out_width = 1;
  int64_t kernel[2] = {1, 1}, stride[2] = {1, 1}, padding[2] = {0, 0}, dilation[2] = {1, 1};
};
// The places of maxima within their windows. `indices`: contiguous, i64, of any number of planes
// [out_height, out_width], each index into its plane of [height, width]. Null: windows have more
// than 256 places, or an index is at no place of its window. On CUDA such an index becomes another
// one of its plane, so who scatters by indices stays within the plane.
std::unique_ptr<Kept> keep_windows(const Tensor& indices, const Windows& windows,
                                   const Memory& memory = {});

}  // namespace frugal::compress::foreign
