// Updates of a parameter whose gradient is sparse rows, without the whole gradient.
#pragma once
#include <functional>

#include "autograd/variable.h"

namespace frugal::optim {

// Is the gradient known as sparse rows?
bool has_sparse_grad(const Variable& parameter);

// Calls f with the gradient's rows from `begin` to before `end`, `workspace` of about 1 MiB, until
// all rows were given: what an update reads of one element it may read of these.
// REQUIRES: has_sparse_grad(parameter).
using RowSliceFn = std::function<void(int64_t begin, int64_t end, const Tensor& gradient)>;
void for_row_slices(const Variable& parameter, const RowSliceFn& f);

}  // namespace frugal::optim
