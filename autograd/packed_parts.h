// PackedParts: a tensor that was packed in slices of its leading axis. Internal to autograd.
#pragma once
#include "autograd/saved_tensor.h"

namespace frugal {

struct PackedPart {
  int64_t begin = 0, end = 0;  // rows of the whole
  std::shared_ptr<Packed> packed;
};

// The tensors, which are contiguous, joined along the leading axis, as `workspace`. A single tensor
// is not copied. REQUIRES: at least one.
Tensor join_rows(const std::vector<Tensor>& tensors);

class PackedParts final : public Packed {
 public:
  // REQUIRES: parts in order that cover every row once.
  explicit PackedParts(std::vector<PackedPart> parts) : parts_(std::move(parts)) {}
  Tensor unpack() const override { return unpack_rows(0, parts_.back().end); }
  Tensor unpack_rows(int64_t begin, int64_t end) const override;
  void prefetch() override;
  bool run(PackedPass& pass) const override;  // PackedPass::Variance
  bool knows_variance() const override;

 private:
  std::vector<PackedPart> parts_;
};

}  // namespace frugal
