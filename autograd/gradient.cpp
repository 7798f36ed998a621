#include "autograd/gradient.h"

#include <algorithm>

namespace frugal {

Tensor Gradient::rows(int64_t begin, int64_t end) const {
  if (is_whole()) return whole_.slice(0, begin, end);
  Shape shape = shape_;
  shape[0] = end - begin;
  CategoryScope scope(Category::workspace);
  Tensor out = Tensor::empty(shape, dtype_, device_);
  rows_(begin, end, out);
  return out;
}

const Tensor& Gradient::whole() {
  if (rows_ == nullptr) return whole_;
  CategoryScope scope(Category::gradient);
  Tensor out = Tensor::empty(shape_, dtype_, device_);
  for (int64_t begin = 0; begin < shape_[0]; begin += step_) {
    const int64_t end = std::min(shape_[0], begin + step_);
    rows_(begin, end, out.slice(0, begin, end));
  }
  rows_ = nullptr;
  return whole_ = std::move(out);
}

Tensor Gradient::take() && {
  whole();
  return std::move(whole_);
}

}  // namespace frugal
