#include "optim/row_slices.h"

#include <algorithm>

#include "autograd/gradient.h"
#include "ops/dense/copy.h"

namespace frugal::optim {

bool has_sparse_grad(const Variable& parameter) {
  const auto& leaf = parameter.accumulator();
  return leaf != nullptr && leaf->sparse().defined();
}

void for_row_slices(const Variable& parameter, const RowSliceFn& f) {
  constexpr int64_t kElements = 1 << 18;
  const ops::SparseRows& sparse = parameter.accumulator()->sparse();
  const int64_t width = sparse.rows.size(1);
  const int64_t step = std::max<int64_t>(kElements / std::max<int64_t>(width, 1), 1);
  CategoryScope scope(Category::workspace);
  const Tensor buffer = Tensor::empty({std::min(step, sparse.size), width}, sparse.rows.dtype(),
                                      sparse.rows.device());
  for (int64_t begin = 0; begin < sparse.size; begin += step) {
    const int64_t end = std::min(sparse.size, begin + step);
    const Tensor gradient = buffer.slice(0, 0, end - begin);
    ops::fill(gradient, 0);
    ops::add_rows(gradient, sparse, begin);
    f(begin, end, gradient);
  }
}

}  // namespace frugal::optim
