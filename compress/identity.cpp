#include "compress/identity.h"

#include "ops/copy.h"

namespace frugal::compress {

namespace {

Tensor copy(const Tensor& tensor, Category category) {
  CategoryScope scope(category);
  return ops::clone(tensor);
}

class Copied final : public Packed {
 public:
  explicit Copied(Tensor payload) : payload_(std::move(payload)) {}
  Tensor unpack() const override { return copy(payload_, Category::workspace); }

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
