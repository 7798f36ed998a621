// Entropy stage: packs with another codec, then shrinks its codes without loss where that pays.
//
// A symbol is a byte of a plane of codes (group_layout.h): 2 codes of 4 bits, neighbours in a
// column, or 4 of 2 bits, or one of 8. Each plane of a tensor, or of all its samples of one width
// (mixed.h), has one table, or is kept as it is, or is one byte throughout. Codes are coded in
// blocks of 16 KiB, each on its own, with rANS (rans.h); metadata stays as it is. A sample
// of the codes decides whether to go on, all of them decide whether the tensor is coded; otherwise
// the inner codec's result is kept, no copy made.
//
// The first unpacking decodes all of it into a payload of the inner codec, as `workspace`, which
// stays for the next ones until the packed tensor goes: backward asks several times within moments,
// also where the coded payload is moved away in between (offload.h).
//
// Only results of type Grouped are coded; others, and those on `meta`, are the inner codec's: there
// what coding would save is not known, but may be told (coded_as()). On CUDA packing waits for the
// device twice, to read how often bytes are there and how long streams are: it cannot be recorded
// (core/cuda_graph.h). Unpacking does not wait.
// Thread safety: packing as Quantizer; one packed tensor belongs to one thread. Bytes do not depend
// on the number of threads.
#pragma once
#include "compress/quantize/grouped.h"

namespace frugal::compress {

struct EntropyOptions {
  double min_saving = 0.05;   // of the packed bytes; smaller: not coded. -infinity: always coded
  int64_t min_bytes = 16384;  // packed tensors of fewer bytes are not coded
};

// A tensor of codes that are coded: one u8 payload, category `packed`. What it unpacks to is bit
// for bit what `plain` would have. Errors: as `plain`.
class EntropyCoded final : public Movable {
 public:
  // `payload`: as Entropy writes it, of a tensor like `plain`, whose payload goes.
  EntropyCoded(Tensor payload, std::unique_ptr<Grouped> plain);
  Tensor unpack() const override;
  Tensor unpack_rows(int64_t begin, int64_t end) const override;
  bool carries_sign() const override { return plain_->carries_sign(); }
  Tensor unpack_sign() const override;
  Tensor unpack_sign_rows(int64_t begin, int64_t end) const override;
  bool knows_variance() const override { return plain_->knows_variance(); }

  // As `plain`.
  bool run(PackedPass& pass) const override;

  Tensor take_payload() override { return std::move(payload_); }
  void put_payload(Tensor payload) override { payload_ = std::move(payload); }
  const Tensor& payload() const { return payload_; }

 private:
  const Grouped& decoded() const;

  Tensor payload_;
  std::unique_ptr<Grouped> plain_;  // with its bytes once they are decoded
  int64_t bytes_;                   // of the plain payload
  mutable bool decoded_ = false;
};

// Codes what was packed; or gives it back as it is, where that does not pay or cannot be.
std::unique_ptr<Packed> entropy_code(std::unique_ptr<Packed> packed, const EntropyOptions& options);
// For plans: what is on `meta` as if coding it gave `bytes`; as it is where nothing would be coded.
std::unique_ptr<Packed> coded_as(std::unique_ptr<Packed> packed, int64_t bytes,
                                 const EntropyOptions& options);
// Of what these give: of its payload. 0: of another type.
int64_t coded_bytes(const Packed& packed);

class Entropy final : public Codec {
 public:
  // Errors: no inner codec, a min_saving that is not below 1.
  explicit Entropy(std::shared_ptr<const Codec> inner, const EntropyOptions& options = {});
  // Errors: as the inner codec's.
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override;
  const Codec& inner() const { return *inner_; }

 private:
  std::shared_ptr<const Codec> inner_;
  EntropyOptions options_;
};

}  // namespace frugal::compress
