// Batches on the device of the model that takes them.
#pragma once
#include "data/dataset.h"
#include "models/module.h"

namespace frugal::train {

// Places a batch for `model`. A floating input gets the dtype of the model's activations, on the
// CPU only where that is bf16. On CUDA, input, target and extras are moved there while the host
// goes on. An attention_mask that hides nothing is left out there, so attention need not read it.
// What graphs are built from stays on the host (models/graph_layers.h). An input that a source
// holds is moved or cast once, and again behind steps of training that did not ask for it.
Batch place_batch(Batch batch, const Module& model);

// x on `device`, in category `input`. Undefined stays undefined.
Tensor moved_to(const Tensor& x, Device device);

}  // namespace frugal::train
