// The tensors of a module with PyTorch's names and layouts, for files.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "models/module.h"

namespace frugal::models {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// Converts a tensor that has the shape of a parameter (the parameter or its gradient) to the layout
// of files, and back. conv_weight: [K, R, S, C] here, [K, C, R, S] in files. transposed_linear:
// [out, in] here, [in, out] in files. The results are contiguous copies; those for files are on the
// host.
Tensor to_file_layout(const Tensor& tensor, Module::Layout layout);
Tensor from_file_layout(const Tensor& tensor, Module::Layout layout);

// All parameters, then all buffers, in registration order. The tensors are copies on the host.
NamedTensors state_dict(Module& module);
// The same as views of the module's own tensors on their device, for writing files without a copy.
NamedTensors state_views(Module& module);

// Fills every parameter and buffer in place. bf16, f16 and f64 are cast to the dtype of the module,
// and narrower integers to wider ones; no other casts are made. Names of published files are
// understood (models/published_names.h). `from` names the file in messages. Errors: one message
// that lists missing and unexpected names, and wrong shapes and dtypes; the module is then
// unchanged.
void load_state_dict(Module& module, const NamedTensors& state, const std::string& from = "");

// Only the checks of load_state_dict(). The tensors may be on `meta`.
void check_state_dict(Module& module, const NamedTensors& state, const std::string& from = "");

// Casts parameters and floating-point buffers. f64 serves gradient checks.
void to_dtype(Module& module, DType dtype);

}  // namespace frugal::models
