// Error-bounded codecs: what is unpacked differs from what was packed by no more than a bound that
// the caller gives, for each tensor or each channel. Three codecs behind one interface:
//
//   fixed    codes of a width for each channel (bounded_fixed.h), perhaps zeros as 1-bit masks
//   entropy  steps of twice the bound, entropy coded (bounded_entropy.h)
//   zfp      blocks of neighbours transformed together (zfp_codec.h), if built with it
//
// Values that cannot be kept within their bound by codes, non-finite ones among them, are kept as
// they are: the bound holds for all data. f32 keeps it exactly; the other dtypes go through f32 and
// add its rounding and their own.
// On CUDA fixed-point codes are made and unpacked there; packing waits for the device, to read
// ranges and, with masks, sizes. The others go through the host: values are copied there to be
// coded, payloads to be decoded; between, they are on the device.
//
// Thread safety: pack and unpack of one codec may run at the same time. Bytes do not depend on the
// number of threads.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compress/offload/movable.h"
#include "compress/quantize/quantize.h"

namespace frugal::compress {

// The largest |x^ - x|, of all elements or for each channel (index of the last axis). Infinity: any
// error will do; 0: none.
class ErrorBound {
 public:
  ErrorBound(double whole) : of_{whole} {}  // NOLINT: a number is a bound
  explicit ErrorBound(std::vector<double> channels) : of_(std::move(channels)) {}
  double at(int64_t channel) const {
    return of_.size() == 1 ? of_[0] : of_[static_cast<size_t>(channel)];
  }
  bool by_channel() const { return of_.size() != 1; }
  size_t size() const { return of_.size(); }
  double least() const;  // of all

 private:
  std::vector<double> of_;
};

class ErrorBounded {
 public:
  virtual ~ErrorBounded() = default;
  // Errors: a tensor that is not contiguous and floating, a bound that is negative or NaN, or not
  // one of 1 or C. On `meta`, where there are no data, a payload of 8 bits an element.
  virtual std::unique_ptr<Packed> pack(const Tensor& tensor, const ErrorBound& bound,
                                       const SaveInfo& info) const = 0;
};

struct ErrorBoundedOptions {
  // Stochastic: E[x^] = x, but for zfp, at a bit more for the same bound.
  Rounding rounding = Rounding::nearest;
  uint64_t seed = 0;
  // Of fixed: the widest codes, and what becomes of channels that would need more: kept as they are
  // (the bound holds), or with so many bits after all.
  int max_bits = 16;
  bool clip = false;
  // Codes are not coarser than so many bits over a channel's range, however large the bound.
  int min_bits = 0;
};
// fixed, fixed_z, entropy, zfp where built.
std::vector<std::string> error_bounded_names();
// Errors: unknown name, listing those there are.
std::unique_ptr<ErrorBounded> make_error_bounded(std::string_view name,
                                                 const ErrorBoundedOptions& options = {});

namespace bounded {

// Checks pack()'s arguments for codec `op`. Returns the tensor as f32.
Tensor checked(const char* op, const Tensor& tensor, const ErrorBound& bound);
Tensor on_host(const Tensor& tensor);                 // if on CUDA, else as it is
Tensor packed_bytes(int64_t size, Device device);     // u8, category `packed`
Tensor placed(const Tensor& payload, Device device);  // on `device`, category `packed`

// A payload that unpacks by ranges of elements, as f32, wherever it is cut.
class Payload : public Movable {
 public:
  Payload(Tensor payload, const Shape& shape, DType dtype)
      : payload_(std::move(payload)), shape_(shape), dtype_(dtype) {}
  Tensor unpack() const override;
  Tensor unpack_rows(int64_t begin, int64_t end) const override;
  Tensor take_payload() override { return std::move(payload_); }
  void put_payload(Tensor payload) override { payload_ = std::move(payload); }
  const Tensor& payload() const { return payload_; }

 protected:
  // On the host. REQUIRES: not on CUDA, but for decode().
  const uint8_t* bytes() const { return (here_.defined() ? here_ : payload_).data<uint8_t>(); }
  const Shape& shape() const { return shape_; }

 private:
  // Elements [begin, end) in memory order. REQUIRES: begin < end, not on `meta`.
  virtual void decode(int64_t begin, int64_t end, float* out) const = 0;
  // Whether decode() takes a payload on CUDA, and `out` there.
  virtual bool decodes_on_cuda() const { return false; }
  Tensor range(const Shape& shape, int64_t begin, int64_t end) const;

  Tensor payload_;
  mutable Tensor here_;  // while one on CUDA is decoded: a copy
  Shape shape_;
  DType dtype_;
};

}  // namespace bounded

}  // namespace frugal::compress
