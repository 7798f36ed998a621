// Offload: any codec, with its payloads moved to a file (compress/offload/payload_store.h says what
// is in memory when), or those on CUDA to pinned host memory (compress/offload/host_store.h).
//
// pack() hands the payload to the store, where it is written while forward goes on; prefetch()
// starts its read while backward is still at the nodes before; the unpack functions wait for it and
// leave it in memory until its room is needed, since a tensor that backward takes in slices is
// unpacked many times. What comes back is bit for bit what the codec alone gives.
//
// Packed tensors share the store and may outlive the Offload, not its codec's graph rules. Each
// drops its bytes, in memory and in the file, when it goes; a write under way is broken off.
// Thread safety: pack as the codec's; a packed tensor belongs to one thread.
#pragma once
#include "compress/offload/movable.h"
#include "compress/offload/payload_store.h"

namespace frugal::compress {

class Offload final : public Codec {
 public:
  Offload(const Codec& codec, std::shared_ptr<PayloadStore> store)
      : codec_(codec), store_(std::move(store)) {}
  // Errors: those of the codec and of PayloadStore::put; a codec whose packed tensors are not
  // Movable. Unpacking: those of PayloadStore::pin.
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override;
  std::unique_ptr<Packed> pack_and_run(const Tensor& tensor, const SaveInfo& info,
                                       PackedPass& pass) const override;

 private:
  std::unique_ptr<Packed> move(std::unique_ptr<Packed> packed, const Tensor& tensor) const;
  const Codec& codec_;
  std::shared_ptr<PayloadStore> store_;
};

}  // namespace frugal::compress
