// Gradient: what backward gives for an input. It is a whole tensor, or a function that makes slices
// of the leading axis, or only the rows that are not 0.
#pragma once
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ops/sequence/sparse_rows.h"

namespace frugal {

// Is this the only holder of these bytes? Then they may be written over.
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
  // A gradient like `like` that `rows` makes when somebody asks for it. Where the whole is wanted,
  // `rows` makes `step` items at a time. What `rows` reads must not be written while this lives.
  Gradient(const Tensor& like, int64_t step, RowsFn rows)
      : Gradient(like.shape(), like, step, std::move(rows)) {}
  // A gradient of this shape, with the dtype and the device of `like`, that `rows` makes in the
  // same way. `is_small`: what `rows` reads is much smaller than the whole.
  Gradient(const Shape& shape, const Tensor& like, int64_t step, RowsFn rows, bool is_small = false)
      : shape_(shape),
        dtype_(like.dtype()),
        device_(like.device()),
        step_(step),
        is_small_(is_small),
        rows_(std::move(rows)) {}

  // A gradient that is made of small tensors: each gives `step` items of the leading axis, the last
  // one what is left. `rows` writes what consecutive items of a part give. When the whole is made,
  // a part is freed as soon as its items are there, and the whole takes memory only as it is
  // written.
  using PartFn = std::function<void(const Tensor& items, const Tensor& out)>;
  Gradient(const Shape& shape, int64_t step, std::vector<Tensor> parts, PartFn rows);

  bool defined() const { return is_whole() || rows_ != nullptr || parts_ != nullptr; }
  bool is_whole() const { return whole_.defined(); }
  // Is what it is made of much smaller than the whole? Then it may wait until it is asked for.
  bool is_small() const { return is_small_ && !is_whole(); }
  const Shape& shape() const { return is_whole() ? whole_.shape() : shape_; }
  DType dtype() const { return is_whole() ? whole_.dtype() : dtype_; }
  Device device() const { return is_whole() ? whole_.device() : device_; }

  // Defined if the gradient is 0 except in these rows.
  const ops::SparseRows& sparse() const { return sparse_; }

  // The items from `begin` to before `end` of the leading axis: a view of the whole, or a new
  // tensor in category `workspace`.
  Tensor rows(int64_t begin, int64_t end) const;
  // Gives this gradient in another shape, as a view of the whole. A gradient that comes in slices
  // still comes in slices where each new item consists of whole old ones, such as [N * A, C] seen
  // as [N, A, C]. REQUIRES: as many elements.
  Gradient reshaped(const Shape& shape) &&;
  const Tensor& whole();  // made at the first call
  Tensor take() &&;       // moves whole() out

 private:
  struct Parts {
    std::vector<Tensor> tensors;
    PartFn rows;
  };
  void write(int64_t begin, int64_t end, const Tensor& out) const;

  Tensor whole_;
  Shape shape_;
  DType dtype_{};
  Device device_{};
  int64_t step_ = 0;
  bool is_small_ = false;
  RowsFn rows_;
  std::shared_ptr<Parts> parts_;  // in the place of rows_; shared by copies of this
  ops::SparseRows sparse_;
};

// sum += term; an undefined sum becomes the term. If others hold the sum's bytes, it is copied
// first.
void add_to(Tensor& sum, Tensor term);

// Where the gradient of a leaf adds up. Edges of the graph hold this and never a value.
class GradAccumulator {
 public:
  bool defined() const { return grad_.defined() || sparse_.defined(); }
  const Tensor& whole();  // undefined if there is none; made of sparse rows at the first call
  const ops::SparseRows& sparse() const { return sparse_; }  // defined while nothing else was added
  // All elements that may differ from 0: the sparse rows, or the whole. For norms, factors and
  // checks, which zeros do not change.
  const Tensor& values() const { return sparse_.defined() ? sparse_.rows : grad_; }
  void add(Gradient term);
  void set(Tensor grad);  // undefined: drops the gradient

 private:
  Tensor grad_;
  ops::SparseRows sparse_;
};

using Grads = std::vector<Gradient>;  // one for each input; undefined where an input needs none

}  // namespace frugal
