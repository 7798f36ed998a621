#include "autograd/gradient.h"

#include <algorithm>

#include "ops/dense/copy.h"
#include "ops/dense/inplace.h"

namespace frugal {

Gradient::Gradient(ops::SparseRows sparse)
    : shape_(sparse.shape()),
      dtype_(sparse.rows.dtype()),
      device_(sparse.rows.device()),
      step_(std::max<int64_t>(sparse.size, 1)),
      rows_([sparse](int64_t begin, int64_t, const Tensor& out) {
        ops::fill(out, 0);
        ops::add_rows(out, sparse, begin);
      }),
      sparse_(std::move(sparse)) {}

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
  sparse_ = {};
  return whole_ = std::move(out);
}

Tensor Gradient::take() && {
  whole();
  return std::move(whole_);
}

void add_to(Tensor& sum, Tensor term) {
  if (!sum.defined()) {
    sum = std::move(term);
    return;
  }
  // The sum may also be the gradient of another variable. Then it must not be written to.
  if (!is_sole_owner(sum)) sum = ops::clone(sum);
  ops::accumulate(sum, term);
}

void GradAccumulator::add(Gradient term) {
  if (term.sparse().defined() && !grad_.defined()) {
    sparse_ = sparse_.defined() ? ops::merge_rows(sparse_, term.sparse()) : term.sparse();
  } else if (term.sparse().defined()) {
    if (!is_sole_owner(grad_)) grad_ = ops::clone(grad_);
    ops::add_rows(grad_, term.sparse());
  } else {
    Tensor whole = std::move(term).take();
    if (!grad_.defined() && !is_sole_owner(whole))
      whole = ops::clone(whole);  // a leaf owns its own
    if (sparse_.defined()) {
      ops::add_rows(whole, sparse_);
      set(std::move(whole));
    } else {
      add_to(grad_, std::move(whole));
    }
  }
}

const Tensor& GradAccumulator::whole() {
  if (sparse_.defined()) {
    CategoryScope scope(Category::gradient);
    set(Gradient(sparse_).take());
  }
  return grad_;
}

void GradAccumulator::set(Tensor grad) {
  sparse_ = {};
  grad_ = std::move(grad);
}

}  // namespace frugal
