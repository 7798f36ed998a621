#include "compress/offload/offload.h"

#include "autograd/packed_pass.h"

namespace frugal::compress {
namespace {

class Offloaded final : public Packed {
 public:
  Offloaded(std::unique_ptr<Movable> packed, std::shared_ptr<PayloadStore> store)
      : packed_(std::move(packed)), store_(std::move(store)) {
    id_ = store_->put(packed_->take_payload());
  }
  ~Offloaded() override { store_->drop(id_); }
  Offloaded(const Offloaded&) = delete;
  Offloaded& operator=(const Offloaded&) = delete;

  Tensor unpack() const override { return Here(*this)->unpack(); }
  Tensor unpack_rows(int64_t begin, int64_t end) const override {
    return Here(*this)->unpack_rows(begin, end);
  }
  Tensor unpack_sign() const override { return Here(*this)->unpack_sign(); }
  Tensor unpack_sign_rows(int64_t begin, int64_t end) const override {
    return Here(*this)->unpack_sign_rows(begin, end);
  }
  bool run(PackedPass& pass) const override {
    if (pass.is_variance() && !knows_variance()) return false;
    return Here(*this)->run(pass);
  }
  bool carries_sign() const override { return packed_->carries_sign(); }
  bool serves_one_op() const override { return packed_->serves_one_op(); }
  bool knows_variance() const override { return packed_->knows_variance(); }
  bool loses_nothing() const override { return packed_->loses_nothing(); }
  void prefetch() override { store_->prefetch(id_); }

 private:
  // The packed tensor with its payload.
  class Here {
   public:
    explicit Here(const Offloaded& offloaded) : offloaded_(offloaded) {
      offloaded_.packed_->put_payload(offloaded_.store_->pin(offloaded_.id_));
    }
    ~Here() {
      offloaded_.packed_->take_payload();
      offloaded_.store_->unpin(offloaded_.id_);
    }
    Here(const Here&) = delete;
    Here& operator=(const Here&) = delete;
    const Movable* operator->() const { return offloaded_.packed_.get(); }

   private:
    const Offloaded& offloaded_;
  };

  std::unique_ptr<Movable> packed_;
  std::shared_ptr<PayloadStore> store_;
  PayloadStore::Id id_;
};

}  // namespace

std::unique_ptr<Packed> Offload::pack(const Tensor& tensor, const SaveInfo& info) const {
  return move(codec_.pack(tensor, info), tensor);
}

std::unique_ptr<Packed> Offload::pack_and_run(const Tensor& tensor, const SaveInfo& info,
                                              PackedPass& pass) const {
  std::unique_ptr<Packed> packed = codec_.pack_and_run(tensor, info, pass);
  return packed == nullptr ? nullptr : move(std::move(packed), tensor);
}

std::unique_ptr<Packed> Offload::move(std::unique_ptr<Packed> packed, const Tensor& tensor) const {
  Movable* const movable = packed->movable();
  FRUGAL_CHECK(movable != nullptr,
               "[offload] expected a codec whose payload can be moved, got one that packs {} in "
               "another way",
               describe(tensor));
  std::unique_ptr<Movable> owned(movable);
  packed.release();
  return std::make_unique<Offloaded>(std::move(owned), store_);
}

}  // namespace frugal::compress
