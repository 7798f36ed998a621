// Batches on the device of the model that takes them.
#pragma once
#include "data/dataset.h"
#include "models/module.h"

namespace frugal::train {

// The batch for `model`. On CUDA: its input, in the dtype of the model's activations where it is
// floating, its targets and what the model reads, moved there while the host goes on; an
// attention_mask that hides nothing is left out, so that attention need not read it. What graphs
// are built from stays on the host (models/graph_layers.h). What a source holds is moved once. On
// meta the input has the dtype that it will have there. A graph's batch, and one with answers of
// kIgnored, says which of its rows a loss is made of (train/targets.h), by the extras
// counted_target, and, where they are not all, counted_rows and counted_weight.
Batch placed(Batch batch, const Module& model);

}  // namespace frugal::train
