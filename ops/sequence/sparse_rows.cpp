#include "ops/sequence/sparse_rows.h"

#include <algorithm>

#include "core/dtype_switch.h"
#include "ops/checks.h"

namespace frugal::ops {

void add_rows(const Tensor& out, const SparseRows& sparse, int64_t begin) {
  const int64_t m = out.size(0), width = out.size(1);
  FRUGAL_CHECK(begin >= 0 && begin + m <= sparse.size && width == sparse.rows.size(1) &&
                   out.dtype() == sparse.rows.dtype() && out.is_contiguous(),
               "[add_rows] expected contiguous rows of a table {} {}, got {} from row {} on",
               sparse.shape(), name_of(sparse.rows.dtype()), describe(out), begin);
  out.bump_version();
  if (out.device() == kMeta) return;
  const int64_t* ids = sparse.ids.data<int64_t>();
  const int64_t* end = ids + sparse.ids.numel();
  with_real(out.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* rows = sparse.rows.data<T>();
    T* to = out.mut<T>();
    for (const int64_t* id = std::lower_bound(ids, end, begin); id != end && *id < begin + m;
         ++id) {
      const T* from = rows + (id - ids) * width;
      T* row = to + (*id - begin) * width;
      for (int64_t k = 0; k < width; ++k) row[k] += from[k];
    }
  });
}

SparseRows merge_rows(const SparseRows& a, const SparseRows& b) {
  FRUGAL_CHECK(a.shape() == b.shape() && a.rows.dtype() == b.rows.dtype(),
               "[merge_rows] expected two tables of one shape and dtype, got {} {} and {} {}",
               a.shape(), name_of(a.rows.dtype()), b.shape(), name_of(b.rows.dtype()));
  const int64_t width = a.rows.size(1);
  const Device device = a.rows.device();
  if (device == kMeta) {  // as many rows as are possible
    const int64_t n = std::min(a.size, a.rows.size(0) + b.rows.size(0));
    return {Tensor::empty({n}, DType::i64, device),
            Tensor::empty({n, width}, a.rows.dtype(), device), a.size};
  }
  const int64_t *const a_begin = a.ids.data<int64_t>(), *const a_end = a_begin + a.ids.numel();
  const int64_t *const b_begin = b.ids.data<int64_t>(), *const b_end = b_begin + b.ids.numel();
  std::vector<int64_t> ids;
  std::set_union(a_begin, a_end, b_begin, b_end, std::back_inserter(ids));
  const auto n = static_cast<int64_t>(ids.size());
  SparseRows sum{Tensor::from<int64_t>(ids, {n}), Tensor::empty({n, width}, a.rows.dtype()),
                 a.size};
  with_real(sum.rows.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* row = sum.rows.mut<T>();
    const T *in_a = a.rows.data<T>(), *in_b = b.rows.data<T>();
    const int64_t *next_a = a_begin, *next_b = b_begin;
    for (const int64_t id : ids) {
      const bool has_a = next_a != a_end && *next_a == id, has_b = next_b != b_end && *next_b == id;
      for (int64_t k = 0; k < width; ++k)
        row[k] = has_a && has_b ? in_a[k] + in_b[k] : has_a ? in_a[k] : in_b[k];
      if (has_a) ++next_a, in_a += width;
      if (has_b) ++next_b, in_b += width;
      row += width;
    }
  });
  return sum;
}

}  // namespace frugal::ops
