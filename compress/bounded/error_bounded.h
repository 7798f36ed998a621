// Error-bounded codecs: unpacked values differ from packed ones by no more than a bound, which the
// caller gives for each tensor or for each channel. Four codecs have this interface:
//
//   fixed      codes with a width for each channel (bounded_fixed.h), and zeros as 1-bit masks
//   entropy    uniform steps, coded by entropy (bounded_entropy.h)
//   predicted  dithered steps, coded by what neighbours predict (bounded_predicted.h)
//   zfp        blocks of neighbours that are transformed together (zfp_codec.h), if built with zfp
//
// Values whose bound codes cannot keep, such as values that are not finite, are stored unchanged.
// So the bound holds for all data. f32 keeps it exactly. Other dtypes go through f32 and add its
// rounding and their own. What is finite stays finite, in f16 too.
// On CUDA, fixed-point codes are made and unpacked on the device; packing waits for the device to
// read ranges and, with masks, sizes. The other codecs go through the host: values are copied to
// the host to be coded, and payloads to be decoded. In between, payloads are on the device.
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

// The largest allowed |x^ - x|, for all elements or for each channel (index of the last axis).
// Infinity: any error is allowed; 0: none.
class ErrorBound {
 public:
  ErrorBound(double whole) : of_{whole} {}  // NOLINT: a number is a bound
  explicit ErrorBound(std::vector<double> channels) : of_(std::move(channels)) {}
  double at(int64_t channel) const {
    return of_.size() == 1 ? of_[0] : of_[static_cast<size_t>(channel)];
  }
  bool by_channel() const { return of_.size() != 1; }
  size_t size() const { return of_.size(); }
  double least() const;  // the least bound of all

 private:
  std::vector<double> of_;
};

namespace bounded {
class Payload;
}

class ErrorBounded {
 public:
  virtual ~ErrorBounded() = default;
  // Errors: a tensor that is not contiguous and floating-point; a bound that is negative or NaN;
  // another number of bounds than 1 or C. On `meta` there are no data, and the payload has
  // `meta_bits` for each element.
  virtual std::unique_ptr<bounded::Payload> pack(const Tensor& tensor, const ErrorBound& bound,
                                                 const SaveInfo& info) const = 0;
};

struct ErrorBoundedOptions {
  // Stochastic: E[x^] = x, except for zfp. It takes a bit more for the same bound.
  Rounding rounding = Rounding::nearest;
  uint64_t seed = 0;
  // For fixed codes: the widest codes. A channel that needs more is stored unchanged (so the bound
  // holds), or gets so many bits in spite of its bound.
  int max_bits = 16;
  bool clip = false;
  // Codes have at least so many bits over the range of a channel, however large the bound is.
  int min_bits = 0;
  // The bits of an element on `meta`, where no values say how many an element takes.
  double meta_bits = 8;
  // With stochastic rounding: the variance of an error is at most bound^2 / 4, too. Codecs other
  // than `predicted` keep that anyway.
  bool expected = false;
};
// fixed, fixed_z, entropy, predicted, and zfp if it was built.
std::vector<std::string> error_bounded_names();
// Errors: an unknown name; the message lists the known ones.
std::unique_ptr<ErrorBounded> make_error_bounded(std::string_view name,
                                                 const ErrorBoundedOptions& options = {});

namespace bounded {

// Checks the arguments of pack() for codec `op`. Returns the tensor as f32.
Tensor checked(const char* op, const Tensor& tensor, const ErrorBound& bound);
Tensor on_host(const Tensor& tensor);              // a copy if the tensor is on CUDA, else the
                                                   // tensor itself
Tensor packed_bytes(int64_t size, Device device);  // u8, category `packed`
// The payload on `meta`: `head` bytes and meta_bits for each element.
Tensor meta_payload(int64_t head, int64_t numel, const ErrorBoundedOptions& options);
Tensor placed(const Tensor& payload, Device device);  // on `device`, category `packed`

// A payload whose elements can be unpacked as f32 for any range.
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
  // The bytes on the host. REQUIRES: not on CUDA, except in decode().
  const uint8_t* bytes() const { return (here_.defined() ? here_ : payload_).data<uint8_t>(); }
  const Shape& shape() const { return shape_; }

 private:
  // Elements [begin, end) in memory order. REQUIRES: begin < end, not on `meta`.
  virtual void decode(int64_t begin, int64_t end, float* out) const = 0;
  // Whether decode() reads a payload on CUDA and writes to `out` there.
  virtual bool decodes_on_cuda() const { return false; }
  Tensor range(const Shape& shape, int64_t begin, int64_t end) const;

  Tensor payload_;
  mutable Tensor here_;  // while a payload on CUDA is decoded: its copy on the host
  Shape shape_;
  DType dtype_;
};

}  // namespace bounded

}  // namespace frugal::compress
