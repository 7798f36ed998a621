// What all ranks must agree on before and while they train together.
#pragma once
#include "autograd/variable.h"
#include "core/named_tensors.h"
#include "distributed/communicator.h"

namespace frugal::distributed {

// Errors, on all ranks: a rank whose parameters have other names, shapes or dtypes than those of
// rank 0, or another order. The message names the rank and the first parameter that differs.
void check_same_parameters(Communicator& communicator, const NamedVariables& parameters);

// The values of `root`, on all ranks.  Errors: a tensor that is not contiguous.
void broadcast_values(Communicator& communicator, const NamedTensors& tensors, int root = 0);

// Errors, on all ranks: tensors whose bits differ from those of rank 0. The message names the rank
// and the first such tensor. Only hashes are sent.
void check_same_values(Communicator& communicator, const NamedTensors& tensors);

// The lines of a text, each of which ends with a line end.
std::vector<std::string> lines_of(const std::string& text);

}  // namespace frugal::distributed
