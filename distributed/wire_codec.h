// WireCodec: packs gradients into few bits for their way between ranks.
// train/ranks/gradient_codec.h is one; `distributed` knows only what it must do.
#pragma once
#include "core/tensor.h"

namespace frugal::distributed {

// Names the random words of one encode(). No two calls of a training run have the same key.
struct WireKey {
  uint64_t step = 0;
  uint64_t stream = 0;  // within the step
};

// Works on contiguous f32 on any device. A decoded element is at most a step of the codec from the
// encoded one and has its value as its mean. If some of the elements are not finite, then these and
// perhaps others near them are decoded as NaN.
// Thread safety: one thread.
class WireCodec {
 public:
  virtual ~WireCodec() = default;
  // How many bytes the codes of so many elements take.
  virtual int64_t bytes(int64_t elements) const = 0;
  // x: [n] f32.  codes: [bytes(n)] u8 on the device of x, from an address that is a multiple of 64.
  virtual void encode(const Tensor& x, const WireKey& key, const Tensor& codes) const = 0;
  virtual void decode(const Tensor& codes, const Tensor& x) const = 0;
};

}  // namespace frugal::distributed
