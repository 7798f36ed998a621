// Updates a parameter whose gradient is sparse rows, without making the whole gradient.
#pragma once
#include <functional>

#include "autograd/variable.h"

namespace frugal::optim {

// Whether the gradient is held as sparse rows.
bool has_sparse_grad(const Variable& parameter);

// Calls f for slices of the gradient, rows [begin, end), until all rows were given. A slice is a
// `workspace` tensor of about 1 MiB. So an elementwise update can be done slice by slice.
// REQUIRES: has_sparse_grad(parameter).
using RowSliceFn = std::function<void(int64_t begin, int64_t end, const Tensor& gradient)>;
void for_row_slices(const Variable& parameter, const RowSliceFn& f);

}  // namespace frugal::optim
