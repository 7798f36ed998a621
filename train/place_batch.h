// Batches on the device of the model that takes them.
#pragma once
#include "data/dataset.h"
#include "models/module.h"

namespace frugal::train {

// Places a batch for `model`. On CUDA, input, target and extras are moved there while the host goes
// on, and a floating input gets the dtype of the model's activations. An attention_mask that hides
// nothing is left out, so attention need not read it. What graphs are built from stays on the host
// (models/graph_layers.h). An input that a source holds is moved once, and again behind steps of
// training that did not ask for it. On meta the input has the
// dtype that it will have on CUDA.
Batch place_batch(Batch batch, const Module& model);

// x on `device`, in category `input`. Undefined stays undefined.
Tensor moved_to(const Tensor& x, Device device);

}  // namespace frugal::train
