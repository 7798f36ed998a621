// A module's tensors under PyTorch's names and in PyTorch's layouts, for files.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "models/module.h"

namespace frugal::models {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// A parameter-shaped tensor (the parameter or its gradient) as files hold it, and back.
// conv_weight: [K, R, S, C] here, [K, C, R, S] there; transposed_linear: [out, in] here, [in, out]
// there; contiguous copies, those for files on the host.
Tensor to_file_layout(const Tensor& tensor, Module::Layout layout);
Tensor from_file_layout(const Tensor& tensor, Module::Layout layout);

// Parameters and buffers, parameters first, in registration order. Copies, on the host.
NamedTensors state_dict(Module& module);
// The same as views of the module's tensors, where they are: for writing files without a copy.
NamedTensors state_views(Module& module);

// Fills every parameter and buffer, in place. bf16, f16 and f64 are cast to what the module has,
// and narrower integers to wider ones; no others become one another. Names of published files are
// understood (models/published_names.h). `from` names the file in messages. Errors: one message
// that lists missing, unexpected, wrongly shaped and wrongly typed names; the module is then
// unchanged.
void load_state_dict(Module& module, const NamedTensors& state, const std::string& from = "");

// The errors of load_state_dict alone; tensors on meta will do.
void check_state_dict(Module& module, const NamedTensors& state, const std::string& from = "");

// Casts parameters and floating buffers; f64 for gradient checks.
void to_dtype(Module& module, DType dtype);

}  // namespace frugal::models
