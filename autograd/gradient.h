// Gradient: what backward gives for an input, whole, in slices of its leading axis, or as the rows
// that are not 0.
#pragma once
#include <functional>
#include <utility>
#include <vector>

#include "ops/sequence/sparse_rows.h"

namespace frugal {

// Does nobody else hold these bytes? Then they may be written over.
inline bool is_sole_owner(const Tensor& tensor) {
  return tensor.storage().use_count() == 1 && tensor.is_contiguous();
}

class Gradient {
 public:
  // Writes the items from `begin` to before `end` to `out`, contiguous.
  using RowsFn = std::function<void(int64_t begin, int64_t end, const Tensor& out)>;

  Gradient() = default;                                 // undefined
  Gradient(Tensor whole) : whole_(std::move(whole)) {}  // NOLINT: a tensor is a gradient
  explicit Gradient(ops::SparseRows sparse);
  // Like `like`, made by `rows` when asked for. Whoever wants all of it gets it made by `step`
  // items at a time. What `rows` reads must not be written while this lives.
  Gradient(const Tensor& like, int64_t step, RowsFn rows)
      : shape_(like.shape()),
        dtype_(like.dtype()),
        device_(like.device()),
        step_(step),
        rows_(std::move(rows)) {}

  bool defined() const { return is_whole() || rows_ != nullptr; }
  bool is_whole() const { return whole_.defined(); }
  const Shape& shape() const { return is_whole() ? whole_.shape() : shape_; }
  DType dtype() const { return is_whole() ? whole_.dtype() : dtype_; }
  Device device() const { return is_whole() ? whole_.device() : device_; }

  // Defined where it is known by these rows alone.
  const ops::SparseRows& sparse() const { return sparse_; }

  // From `begin` to before `end` of the leading axis: a view of the whole, or made as `workspace`.
  Tensor rows(int64_t begin, int64_t end) const;
  const Tensor& whole();  // made once
  Tensor take() &&;       // whole(), which leaves this

 private:
  Tensor whole_;
  Shape shape_;
  DType dtype_{};
  Device device_{};
  int64_t step_ = 0;
  RowsFn rows_;
  ops::SparseRows sparse_;
};

// sum += term; an undefined sum becomes the term. Writes to a copy of what others hold.
void add_to(Tensor& sum, Tensor term);

// Where a leaf's gradient accumulates. Edges hold this, never a value.
class GradAccumulator {
 public:
  bool defined() const { return grad_.defined() || sparse_.defined(); }
  const Tensor& whole();  // undefined if there is none; made once of sparse rows
  const ops::SparseRows& sparse() const { return sparse_; }  // while it consists of these alone
  // whole(), or what of it is not 0: for norms, factors and checks, which other rows do not change.
  const Tensor& values() const { return sparse_.defined() ? sparse_.rows : grad_; }
  void add(Gradient term);
  void set(Tensor grad);  // an undefined one: drops it

 private:
  Tensor grad_;
  ops::SparseRows sparse_;
};

using Grads = std::vector<Gradient>;  // undefined where an input needs none

}  // namespace frugal
