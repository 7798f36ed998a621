#include "autograd/packed_parts.h"

#include <algorithm>

#include "autograd/packed_pass.h"
#include "ops/dense/copy.h"

namespace frugal {

Tensor join_rows(const std::vector<Tensor>& tensors) {
  if (tensors.size() == 1) return tensors.front();
  Shape shape = tensors.front().shape();
  shape[0] = 0;
  for (const Tensor& tensor : tensors) shape[0] += tensor.size(0);
  CategoryScope scope(Category::workspace);
  Tensor all = Tensor::empty(shape, tensors.front().dtype(), tensors.front().device());
  int64_t row = 0;
  for (const Tensor& tensor : tensors) {
    ops::copy_into(all.slice(0, row, row + tensor.size(0)), tensor);
    row += tensor.size(0);
  }
  return all;
}

Tensor PackedParts::unpack_rows(int64_t begin, int64_t end) const {
  std::vector<Tensor> found;
  for (const PackedPart& part : parts_) {
    const int64_t from = std::max(begin, part.begin), to = std::min(end, part.end);
    if (from < to) found.push_back(part.packed->unpack_rows(from - part.begin, to - part.begin));
  }
  return join_rows(found);
}

void PackedParts::prefetch() {
  for (const PackedPart& part : parts_) part.packed->prefetch();
}

bool PackedParts::run(PackedPass& pass) const {
  if (!pass.is_variance() || !knows_variance()) return false;
  std::vector<Tensor> found;
  for (const PackedPart& part : parts_) found.push_back(variance_of(*part.packed));
  pass.out = join_rows(found);
  return true;
}

bool PackedParts::knows_variance() const {
  return std::all_of(parts_.begin(), parts_.end(),
                     [](const PackedPart& part) { return part.packed->knows_variance(); });
}

}  // namespace frugal
