// TensorIdentity: which values a tensor shows, as the key of a Memo. Equal identities show equal
// values: a write in place, another view and another tensor each give another identity.
#pragma once
#include <algorithm>
#include <memory>
#include <tuple>

#include "core/memo.h"
#include "core/tensor.h"

namespace frugal {

class TensorIdentity {
 public:
  TensorIdentity() = default;
  // An undefined tensor has the identity of the default constructor. Does not keep the tensor's
  // memory.
  explicit TensorIdentity(const Tensor& x) {
    if (!x.defined()) return;
    storage_ = x.storage();
    id_ = x.storage()->id();
    version_ = x.storage()->version();
    dtype_ = x.dtype();
    offset_ = x.offset();
    shape_ = x.shape();
    strides_ = x.strides();
    defined_ = true;
  }
  // Does nobody hold the tensor's memory any more? Then nobody can ask for this identity again.
  bool is_gone() const { return defined_ && storage_.expired(); }

  bool operator<(const TensorIdentity& other) const {
    const auto numbers = [](const TensorIdentity& x) {
      return std::tie(x.defined_, x.id_, x.version_, x.dtype_, x.offset_);
    };
    if (numbers(*this) != numbers(other)) return numbers(*this) < numbers(other);
    if (!(shape_ == other.shape_)) return is_before(shape_, other.shape_);
    return is_before(strides_, other.strides_);
  }

 private:
  static bool is_before(const Shape& a, const Shape& b) {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  }
  std::weak_ptr<Storage> storage_;
  bool defined_ = false;
  uint64_t id_ = 0, version_ = 0;
  DType dtype_ = DType::f32;
  int64_t offset_ = 0;
  Shape shape_, strides_;
};

// Forgets what was made of tensors that nobody holds any more. REQUIRES: keys are tuples that begin
// with a TensorIdentity.
template <class Key, class Value>
void forget_gone(Memo<Key, Value>& memo) {
  memo.forget_if([](const Key& key, const Value&) { return std::get<0>(key).is_gone(); });
}

}  // namespace frugal
