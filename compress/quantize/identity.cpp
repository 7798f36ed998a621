#include "compress/quantize/identity.h"

#include "compress/offload/movable.h"
#include "ops/dense/copy.h"

namespace frugal::compress {

namespace {

Tensor copy(const Tensor& tensor, Category category) {
  CategoryScope scope(category);
  return ops::clone(tensor);
}

class Copied final : public Movable {
 public:
  explicit Copied(Tensor payload) : payload_(std::move(payload)) {}
  Tensor unpack() const override { return copy(payload_, Category::workspace); }
  Tensor unpack_rows(int64_t begin, int64_t end) const override {
    return copy(payload_.slice(0, begin, end), Category::workspace);
  }
  Tensor take_payload() override { return std::move(payload_); }
  void put_payload(Tensor payload) override { payload_ = std::move(payload); }

 private:
  Tensor payload_;
};

}  // namespace

std::unique_ptr<Packed> Identity::pack(const Tensor& tensor, const SaveInfo&) const {
  FRUGAL_CHECK(tensor.defined() && tensor.is_contiguous(),
               "[identity] expected a contiguous tensor, got {}",
               tensor.defined() ? describe(tensor) : "an undefined one");
  return std::make_unique<Copied>(copy(tensor, Category::packed));
}

}  // namespace frugal::compress
