// A model's weights from a file.
#pragma once
#include <string>

#include "data/formats/safetensors.h"
#include "models/module.h"

namespace frugal::train {

// Puts every tensor of the file into the model. Names, shapes and dtypes are checked before the
// first tensor is read.
// Errors (with the file and the tensor): those of load_state_dict; values that are not finite, or
// that f32 cannot hold.
void load_weights(Module& module, const data::SafetensorsFile& file);

// Errors (naming `path` and `name`): a floating tensor on cpu with a value that is NaN, infinite or
// beyond f32.
void check_finite(const std::string& path, const std::string& name, const Tensor& tensor);

}  // namespace frugal::train
