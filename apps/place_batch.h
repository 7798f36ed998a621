// Batches on the device of the model that takes them.
#pragma once
#include "data/dataset.h"
#include "models/module.h"

namespace frugal::apps {

// The batch for `model`: its input, in the dtype of the model's activations where it is floating,
// its targets and what the model reads on its device. What graphs are built from stays on the host
// (models/graph_layers.h). A held input is moved once. The batch itself where the model is not on
// CUDA.
Batch placed(Batch batch, const Module& model);

}  // namespace frugal::apps
