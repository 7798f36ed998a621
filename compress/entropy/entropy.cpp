#include "compress/entropy/entropy.h"

#include "autograd/packed_pass.h"
#include "compress/entropy/entropy_kernels.h"

namespace frugal::compress {

using namespace entropy;

namespace {

Grouped* grouped_in(Packed* packed) {
  Movable* const movable = packed != nullptr ? packed->movable() : nullptr;
  return movable != nullptr ? movable->grouped() : nullptr;
}

}  // namespace

Entropy::Entropy(std::shared_ptr<const Codec> inner, const EntropyOptions& options)
    : inner_(std::move(inner)), options_(options) {
  FRUGAL_CHECK(inner_ != nullptr, "[entropy] expected an inner codec, got none");
  FRUGAL_CHECK(options.min_saving < 1, "[entropy] expected min_saving below 1, got {}",
               options.min_saving);
}

std::unique_ptr<Packed> Entropy::pack(const Tensor& tensor, const SaveInfo& info) const {
  return entropy_code(inner_->pack(tensor, info), options_);
}

int64_t coded_bytes(const Packed& packed) {
  const Movable* const movable = packed.movable();
  return movable != nullptr ? movable->coded_bytes() : 0;
}

std::unique_ptr<Packed> coded_as(std::unique_ptr<Packed> packed, int64_t bytes,
                                 const EntropyOptions& options) {
  Grouped* const plain = grouped_in(packed.get());
  if (plain == nullptr || plain->payload().device() != kMeta) return packed;
  const int64_t all = plain->payload().nbytes();
  if (all == 0 || all < options.min_bytes) return packed;
  Tensor payload = byte_tensor(bytes, Category::packed, kMeta);
  packed.release();
  return std::make_unique<EntropyCoded>(std::move(payload), std::unique_ptr<Grouped>(plain));
}

std::unique_ptr<Packed> entropy_code(std::unique_ptr<Packed> packed,
                                     const EntropyOptions& options) {
  Grouped* const plain = grouped_in(packed.get());
  if (plain == nullptr) return packed;
  const Tensor& before = plain->payload();
  const int64_t bytes = before.nbytes();
  if (before.device() == kMeta) return coded_as(std::move(packed), bytes, options);
  if (bytes == 0 || bytes < options.min_bytes) return packed;
  const CodeMap map(plain->parts());
  Tensor payload;
  dispatch(before.device(), [&](auto backend) {
    payload = encode_kernel(backend, before, map, options.min_saving);
  });
  if (!payload.defined()) return packed;
  packed.release();
  return std::make_unique<EntropyCoded>(std::move(payload), std::unique_ptr<Grouped>(plain));
}

EntropyCoded::EntropyCoded(Tensor payload, std::unique_ptr<Grouped> plain)
    : payload_(std::move(payload)), plain_(std::move(plain)), bytes_(plain_->payload().nbytes()) {
  plain_->take_payload();
}

const Grouped& EntropyCoded::decoded() const {
  if (decoded_) return *plain_;
  Tensor plain = byte_tensor(bytes_, Category::workspace, payload_.device());
  dispatch(payload_.device(), [&](auto backend) {
    decode_kernel(backend, payload_, CodeMap(plain_->parts()), plain);
  });
  plain_->put_payload(std::move(plain));
  decoded_ = true;
  return *plain_;
}

Tensor EntropyCoded::unpack() const { return decoded().unpack(); }
Tensor EntropyCoded::unpack_rows(int64_t begin, int64_t end) const {
  return decoded().unpack_rows(begin, end);
}
Tensor EntropyCoded::unpack_sign() const { return decoded().unpack_sign(); }
Tensor EntropyCoded::unpack_sign_rows(int64_t begin, int64_t end) const {
  return decoded().unpack_sign_rows(begin, end);
}

bool EntropyCoded::run(PackedPass& pass) const {
  if (!pass.is_variance()) return decoded().run(pass);
  if (!knows_variance()) return false;
  if (decoded_ || plain_->parts().size() > 1) return decoded().run(pass);
  // The variance needs the metadata alone. They lie where a plain payload of one part has them.
  plain_->put_payload(payload_);
  const bool done = plain_->run(pass);
  plain_->take_payload();
  return done;
}

}  // namespace frugal::compress
