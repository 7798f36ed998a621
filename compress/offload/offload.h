// Offload: any codec, with its payloads moved to a file (compress/offload/payload_store.h says what
// is in memory at which time). Payloads on CUDA are moved to pinned host memory instead
// (compress/offload/host_store.h).
//
// pack() hands the payload to the store, which writes it while the forward pass continues.
// prefetch() starts to read it while the backward pass is still at earlier nodes. The unpack
// functions wait for it. They leave it in memory until its room is needed, because a tensor that
// the backward pass takes in slices is unpacked many times. Unpacked values are bit for bit those
// of the codec alone.
//
// Packed tensors share the store. They may outlive the Offload, but not the codec if the codec says
// so. Each packed tensor drops its bytes, in memory and in the file, when it is destroyed; a write
// in progress is cancelled.
// Thread safety: pack as for the codec; a packed tensor belongs to one thread.
#pragma once
#include "compress/offload/movable.h"
#include "compress/offload/payload_store.h"

namespace frugal::compress {

class Offload final : public Codec {
 public:
  Offload(const Codec& codec, std::shared_ptr<PayloadStore> store)
      : codec_(codec), store_(std::move(store)) {}
  // Errors: those of the codec and of PayloadStore::put; a codec whose packed tensors are not
  // Movable. Errors of unpacking: those of PayloadStore::pin.
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override;
  std::unique_ptr<Packed> pack_and_run(const Tensor& tensor, const SaveInfo& info,
                                       PackedPass& pass) const override;
  bool moves() const override { return true; }

 private:
  std::unique_ptr<Packed> move(std::unique_ptr<Packed> packed, const Tensor& tensor) const;
  const Codec& codec_;
  std::shared_ptr<PayloadStore> store_;
};

}  // namespace frugal::compress
