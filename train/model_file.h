// Models in safetensors files: save(model, "net.safetensors") and load(model, "net.safetensors").
// Names and layouts are PyTorch's (models/state.h), so that other programs read the files.
#pragma once
#include <string>
#include <vector>

#include "models/module.h"

namespace frugal {

struct LoadOptions {
  bool strict = true;  // the file holds the model's tensors, all of them and no others
};
// What did not meet; both are empty after a strict load.
struct LoadedNames {
  std::vector<std::string> missing;     // the model's, which keep their values
  std::vector<std::string> unexpected;  // the file's, which are ignored
};

// Writes parameters and buffers atomically: whoever reads the file finds the old one or the new
// one.  Errors: a model on `meta`; those of data::write_safetensors.
void save(Module& model, const std::string& path);

// Fills parameters and buffers in place, wherever they are.  Errors: those of
// data::SafetensorsFile; one message that lists all missing, unexpected, wrongly shaped and wrongly
// typed names. The model is then unchanged. Without `strict` missing and unexpected names are
// returned and no error.
LoadedNames load(Module& model, const std::string& path, const LoadOptions& options = {});

}  // namespace frugal
