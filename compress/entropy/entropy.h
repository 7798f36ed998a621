// Entropy stage: packs with another codec, then shrinks its codes without loss where that pays.
//
// A symbol is a byte of a plane of codes (group_layout.h): 2 codes of 4 bits, neighbours in a
// column, or 4 codes of 2 bits, or one of 8. Each plane of a tensor (or of all its samples of one
// width, mixed.h) has one table, or is kept unchanged, or consists of one repeated byte. Codes are
// coded in blocks of at most 64 KiB, each on its own, with rANS (rans.h). Metadata is not coded. A
// sample of the codes decides whether to continue; then all codes decide whether the tensor is
// coded. If not, the result of the inner codec is kept without a copy.
//
// The first unpacking decodes everything into a payload of the inner codec, in category
// `workspace`. That payload stays until the packed tensor is destroyed, because the backward pass
// asks for it several times within moments. This also holds if the coded payload is moved away in
// between (offload.h).
//
// Only results of type Grouped are coded. Other results stay those of the inner codec. On `meta`
// the saving is not known, so a result has the size of the inner codec's, or a given one
// (coded_as()), and decoding takes its memory. On CUDA packing waits for the device once, to read
// how often each byte occurs and how long the streams are. So it cannot be captured
// (core/cuda/cuda_graph.h). Unpacking does not wait.
//
// Thread safety: packing as for Quantizer; one packed tensor belongs to one thread. Bytes do not
// depend on the number of threads.
#pragma once
#include "compress/quantize/grouped.h"

namespace frugal::compress {

struct EntropyOptions {
  double min_saving = 0.05;   // share of the packed bytes; if less is saved, the tensor is not
                              // coded. -infinity: always coded
  int64_t min_bytes = 16384;  // packed tensors of fewer bytes are not coded
};

// A tensor whose codes are coded: one u8 payload, category `packed`. It unpacks to exactly the bits
// of `plain`. Errors: those of `plain`.
class EntropyCoded final : public Movable {
 public:
  // `payload`: written by Entropy for a tensor like `plain`, whose own payload is released.
  EntropyCoded(Tensor payload, std::unique_ptr<Grouped> plain);
  Tensor unpack() const override;
  Tensor unpack_rows(int64_t begin, int64_t end) const override;
  bool carries_sign() const override { return plain_->carries_sign(); }
  bool serves_one_op() const override { return plain_->serves_one_op(); }
  Tensor unpack_sign() const override;
  Tensor unpack_sign_rows(int64_t begin, int64_t end) const override;
  bool knows_variance() const override { return plain_->knows_variance(); }

  // Does what `plain` does.
  bool run(PackedPass& pass) const override;

  Tensor take_payload() override { return std::move(payload_); }
  void put_payload(Tensor payload) override { payload_ = std::move(payload); }
  const Tensor& payload() const { return payload_; }
  int64_t coded_bytes() const override { return payload_.nbytes(); }

 private:
  const Grouped& decoded() const;

  Tensor payload_;
  std::unique_ptr<Grouped> plain_;  // holds its bytes once they are decoded
  int64_t bytes_;                   // bytes of the plain payload
  mutable bool decoded_ = false;
};

// Codes a packed tensor. Returns it unchanged if coding does not pay or is not possible.
std::unique_ptr<Packed> entropy_code(std::unique_ptr<Packed> packed, const EntropyOptions& options);
// For plans: a packed tensor on `meta` that counts as coded into `bytes` bytes. Unchanged if it
// would not be coded.
std::unique_ptr<Packed> coded_as(std::unique_ptr<Packed> packed, int64_t bytes,
                                 const EntropyOptions& options);
// The bytes of the payload that these functions have made; 0 for a packed tensor of another type.
int64_t coded_bytes(const Packed& packed);

class Entropy final : public Codec {
 public:
  // Errors: no inner codec, a min_saving that is not below 1.
  explicit Entropy(std::shared_ptr<const Codec> inner, const EntropyOptions& options = {});
  // Errors: those of the inner codec.
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override;
  const Codec& inner() const { return *inner_; }

 private:
  std::shared_ptr<const Codec> inner_;
  EntropyOptions options_;
};

}  // namespace frugal::compress
