// A model's weights from files that others wrote, or that a run left.
#pragma once
#include <string>

#include "data/formats/safetensors_shards.h"
#include "models/module.h"
#include "models/state.h"

namespace frugal::train {

// The weights at `path`: what SafetensorsShards::open() takes, or the folder of a run, which stands
// for its checkpoint/best.safetensors or, where there is none, for its last checkpoint.
// Errors: those of SafetensorsShards::open(); the folder of a run that has no checkpoint yet.
data::SafetensorsShards open_weights(const std::string& path);

// Puts every tensor of the file into the model. Names, shapes and dtypes are checked before the
// first tensor is read. Weights that the library bitsandbytes has packed are as PackedFiles
// (packed_files.h) gives them, but a SafetensorsFile is taken as it is.
// Errors (with the file and the tensor): those of load_state_dict; values that are not finite, or
// that f32 cannot hold.
models::StateNotes load_weights(Module& module, const data::SafetensorsShards& weights,
                                const models::StateOptions& options = {});
models::StateNotes load_weights(Module& module, const data::SafetensorsFile& file,
                                const models::StateOptions& options = {});
// The tensors themselves, and tensors of their shapes on `meta`. Weights that bitsandbytes has
// packed are as PackedFiles gives them.
models::NamedTensors read_weights(const data::SafetensorsShards& weights);
models::NamedTensors described_weights(const data::SafetensorsShards& weights);

// What load_weights() did, for people: which weights, what was reset, left out and ignored. Lines
// without an end.
std::string describe(const data::SafetensorsShards& weights, const models::StateNotes& notes);

// Errors (naming `path` and `name`): a floating tensor on cpu with a value that is NaN, infinite or
// beyond f32.
void check_finite(const std::string& path, const std::string& name, const Tensor& tensor);

}  // namespace frugal::train
