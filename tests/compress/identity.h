// The identity codec: a raw copy, equal to the bit.
#pragma once
#include "compress/offload/movable.h"
#include "core/error.h"
#include "ops/dense/copy.h"

namespace frugal::compress {

class IdentityCopy final : public Movable {
 public:
  explicit IdentityCopy(const Tensor& tensor) : payload_(copy(tensor, Category::packed)) {}
  Tensor unpack() const override { return copy(payload_, Category::workspace); }
  Tensor unpack_rows(int64_t begin, int64_t end) const override {
    return copy(payload_.slice(0, begin, end), Category::workspace);
  }
  Tensor take_payload() override { return std::move(payload_); }
  void put_payload(Tensor payload) override { payload_ = std::move(payload); }

 private:
  static Tensor copy(const Tensor& tensor, Category category) {
    const CategoryScope scope(category);
    return ops::clone(tensor);
  }
  Tensor payload_;
};

class Identity final : public Codec {
 public:
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo&) const override {
    FRUGAL_CHECK(tensor.defined() && tensor.is_contiguous(),
                 "[identity] expected a contiguous tensor, got another one");
    return std::make_unique<IdentityCopy>(tensor);
  }
};

}  // namespace frugal::compress
