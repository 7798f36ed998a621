// Models in safetensors files: save(model, "net.safetensors") and load(model, "net.safetensors").
// Names and layouts are PyTorch's (models/state.h), so that other programs read the files.
#pragma once
#include <string>
#include <vector>

#include "models/module.h"

namespace frugal {

struct LoadOptions {
  bool strict = true;  // the file holds the model's tensors, all of them and no others
  // The last layer keeps its values, and the file's is left out: for a network with other classes
  // than the file's (models::StateOptions).
  bool reset_head = false;
};
// What a load did. After a strict load `missing` and `unexpected` are empty, except for a reset
// last layer.
struct LoadedNames {
  std::vector<std::string> missing;     // the model's, which keep their values
  std::vector<std::string> unexpected;  // the file's, which are ignored
  // Positions of a ViT or a Swin that were interpolated, because the file's are for another picture
  // size (models::StateOptions).
  std::vector<std::string> resized;
};

// Writes parameters and buffers atomically: whoever reads the file finds the old one or the new
// one.  Errors: a model on `meta`; those of data::write_safetensors.
void save(Module& model, const std::string& path);

// Fills parameters and buffers in place, wherever they are. `path`: a file, a folder with an index
// of several files, or the folder of a run (train/run/weights.h). Names of published weights are
// understood: torchvision's, timm's, Hugging Face's (models/published_names.h). So this makes a
// network with ten classes of published weights with a thousand:
//
//   models::ResNetOptions options = models::resnet_options("resnet50");
//   options.num_classes = 10;
//   models::ResNet net(models::default_init(), options);
//   load(net, "resnet50.safetensors", {.reset_head = true});
//   freeze(net, {kAllButHead});  // if only the last layer is to be trained (models/freeze.h)
//
// Errors: those of train::open_weights(); one message that lists missing, unexpected, wrongly
// shaped and wrongly typed names, the first ten of each. The model is then unchanged. Without
// `strict` missing and unexpected names are returned and no error.
LoadedNames load(Module& model, const std::string& path, const LoadOptions& options = {});

}  // namespace frugal
