#include "autograd/gradient.h"

#include <algorithm>

#include "ops/dense/copy.h"
#include "ops/dense/inplace.h"
#include "ops/dense/shape.h"

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

Gradient::Gradient(const Shape& shape, int64_t step, std::vector<Tensor> parts, PartFn rows)
    : shape_(shape),
      dtype_(parts.at(0).dtype()),
      device_(parts[0].device()),
      step_(step),
      is_small_(true),
      parts_(std::make_shared<Parts>(Parts{std::move(parts), std::move(rows)})) {}

void Gradient::write(int64_t begin, int64_t end, const Tensor& out) const {
  if (parts_ == nullptr) return rows_(begin, end, out);
  for (int64_t at = begin; at < end;) {
    const int64_t part = at / step_, first = part * step_, to = std::min(end, first + step_);
    parts_->rows(parts_->tensors[static_cast<size_t>(part)].slice(0, at - first, to - first),
                 out.slice(0, at - begin, to - begin));
    at = to;
  }
}

Tensor Gradient::rows(int64_t begin, int64_t end) const {
  if (is_whole()) return whole_.slice(0, begin, end);
  Shape shape = shape_;
  shape[0] = end - begin;
  CategoryScope scope(Category::workspace);
  Tensor out = Tensor::empty(shape, dtype_, device_);
  write(begin, end, out);
  return out;
}

Gradient Gradient::reshaped(const Shape& shape) && {
  const Shape old = this->shape();
  const int64_t from = old.dim() > 0 ? old[0] : 1, to = shape.dim() > 0 ? shape[0] : 1;
  if (rows_ == nullptr || sparse_.defined() || old.numel() == 0 || from % to != 0)
    return ops::reshape(std::move(*this).take(), shape);
  const int64_t each = from / to;  // old items in a new one
  Gradient result(*this);
  result.shape_ = shape;
  result.step_ = std::max<int64_t>(step_ / each, 1);
  result.rows_ = [rows = std::move(rows_), old, each](int64_t begin, int64_t end,
                                                      const Tensor& out) {
    Shape part = old;
    part[0] = (end - begin) * each;
    rows(begin * each, end * each, out.view(part));
  };
  return result;
}

const Tensor& Gradient::whole() {
  if (is_whole() || !defined()) return whole_;
  CategoryScope scope(Category::gradient);
  const bool frees = parts_ != nullptr && parts_.use_count() == 1;
  Tensor out =
      frees ? Tensor::growing(shape_, dtype_, device_) : Tensor::empty(shape_, dtype_, device_);
  const int64_t n = shape_[0], item = out.nbytes() / std::max<int64_t>(n, 1);
  for (int64_t begin = 0; begin < n; begin += step_) {
    const int64_t end = std::min(n, begin + step_);
    if (frees) out.storage()->grow(end * item);
    write(begin, end, out.slice(0, begin, end));
    if (frees) parts_->tensors[static_cast<size_t>(begin / step_)] = {};
  }
  rows_ = nullptr;
  parts_ = nullptr;
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
