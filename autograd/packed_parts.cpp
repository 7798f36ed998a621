#include "autograd/packed_parts.h"

#include <algorithm>

#include "autograd/packed_pass.h"
#include "ops/dense/copy.h"

namespace frugal {

void JoinedRows::add(Tensor part) {
  const int64_t begin = next_;
  next_ += part.size(0);
  FRUGAL_ASSERT(next_ <= rows_);
  if (part.size(0) == rows_) {
    whole_ = std::move(part);
    return;
  }
  if (!whole_.defined()) {
    Shape shape = part.shape();
    shape[0] = rows_;
    CategoryScope scope(Category::workspace);
    whole_ = Tensor::empty(shape, part.dtype(), part.device());
  }
  ops::copy_into(whole_.slice(0, begin, next_), part);
}

Tensor PackedParts::unpack_rows(int64_t begin, int64_t end) const {
  JoinedRows found(end - begin);
  for (const PackedPart& part : parts_) {
    const int64_t from = std::max(begin, part.begin), to = std::min(end, part.end);
    if (from < to) found.add(part.packed->unpack_rows(from - part.begin, to - part.begin));
  }
  return found.take();
}

void PackedParts::prefetch() {
  for (const PackedPart& part : parts_) part.packed->prefetch();
}

bool PackedParts::run(PackedPass& pass) const {
  if (!pass.is_variance() || !knows_variance()) return false;
  JoinedRows found(parts_.back().end);
  for (const PackedPart& part : parts_) found.add(variance_of(*part.packed));
  pass.out = found.take();
  if (pass.rows.of != 0) pass.out = pass.out.slice(0, pass.rows.begin, pass.rows.end);
  return true;
}

bool PackedParts::knows_variance() const {
  return std::all_of(parts_.begin(), parts_.end(),
                     [](const PackedPart& part) { return part.packed->knows_variance(); });
}

bool PackedParts::loses_nothing() const {
  return std::all_of(parts_.begin(), parts_.end(),
                     [](const PackedPart& part) { return part.packed->loses_nothing(); });
}

}  // namespace frugal
