// What operations of all ranks check, and how messages name them. Internal to distributed.
#pragma once
#include <string>

#include "distributed/communicator.h"

namespace frugal::distributed {

std::string_view name_of(Reduction reduction);
// "OP of N DTYPE HOW: what"
std::string text_of(const char* op, const Tensor& x, const std::string& how,
                    const std::string& what);
// Errors: a dtype that no reduction takes.
void check_reducible(const char* op, const Tensor& x);
// Errors: not contiguous.
void check_contiguous(const char* op, const Tensor& x);
// Errors: a root that is no rank.
void check_root(int root, int ranks);
// Errors: tensors that differ in dtype or device, bounds that do not fit, a share of this rank for
// itself that has two lengths, not contiguous.
void check_all_to_all(const Tensor& send, const Bounds& send_bounds, const Tensor& receive,
                      const Bounds& receive_bounds, int rank, int ranks);

}  // namespace frugal::distributed
