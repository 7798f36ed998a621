// MPI's own all-reduce, to measure beside that of a Communicator. Internal to distributed and to
// benchmarks.
#pragma once
#include "core/tensor.h"

namespace frugal::distributed {

// Adds up `x` (contiguous f32 on the host) over all ranks, in place, and returns the seconds that
// this took. Training does not use it: MPI promises no equal bits.
// REQUIRES: all ranks call it together. This rank has waited for all operations of its
// communicators.
// Errors: another dtype or device; from_environment() has not begun MPI, or there is none.
double seconds_of_mpi_all_reduce(const Tensor& x);

}  // namespace frugal::distributed
