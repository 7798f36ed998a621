// Names of published weights, where the modules here use others.
#pragma once
#include <functional>
#include <string>

#include "models/state.h"

namespace frugal::models {

// Renames the tensors of `state` to the names of a module; `has` says whether a name is one of
// them. For an unknown name these changes are tried, each alone and behind those before it:
//   - the wrappers `module.`, `_orig_mod.` and `model.` are removed;
//   - `LayerNorm.gamma` and `.beta` become `.weight` and `.bias`, and the prefix `transformer.`,
//     `bert.`, `roberta.`, `distilbert.` or `model.` is added or removed;
//   - the prefix `trunk.` of a self-supervised run (models/self_supervised) is removed;
//   - names of timm's and Hugging Face's ViT and ResNet, and earlier names of torchvision, become
//     torchvision's. Weights that are apart there and one here (query, key, value) are joined.
// A name that stays unknown is dropped if no result depends on its tensor: masks and positions
// (`attn.bias`, `attn.masked_bias`, `position_ids`, `inv_freq`), a pooler that the module lacks,
// the head for next sentences, what a self-supervised run has beside its trunk, and the copy of a
// tied tensor with equal bits (on `meta`: of equal shape). Any other name is kept. `dropped`, if
// given, gets the file's names of what was dropped.
NamedTensors as_named_today(const NamedTensors& state,
                            const std::function<bool(const std::string&)>& has,
                            std::vector<std::string>* dropped = nullptr);

// How the library whose names these are interpolates the positions of a ViT.
GridSampling sampling_of(const NamedTensors& published);

// Is this the name of a last layer, as published files have it? A network with another head leaves
// it out.
bool names_a_head(const std::string& name);

}  // namespace frugal::models
