// PackedParts: a tensor that was packed in slices of its leading axis. Internal to autograd.
#pragma once
#include "autograd/saved_tensor.h"

namespace frugal {

struct PackedPart {
  int64_t begin = 0, end = 0;  // rows of the whole
  std::shared_ptr<Packed> packed;
};

// Joins contiguous tensors along the leading axis, as `workspace`. Each is copied when it comes, so
// that they need not all live beside the whole. A single tensor is not copied.
class JoinedRows {
 public:
  explicit JoinedRows(int64_t rows) : rows_(rows) {}  // rows: how many all tensors have together
  void add(Tensor part);
  Tensor take() { return std::move(whole_); }  // REQUIRES: all rows were added

 private:
  Tensor whole_;
  int64_t rows_, next_ = 0;
};

class PackedParts final : public Packed {
 public:
  // REQUIRES: parts in order that cover every row once.
  explicit PackedParts(std::vector<PackedPart> parts) : parts_(std::move(parts)) {}
  Tensor unpack() const override { return unpack_rows(0, parts_.back().end); }
  Tensor unpack_rows(int64_t begin, int64_t end) const override;
  void prefetch() override;
  bool run(PackedPass& pass) const override;  // PackedPass::Variance
  bool knows_variance() const override;
  bool loses_nothing() const override;

 private:
  std::vector<PackedPart> parts_;
};

}  // namespace frugal
