// How deep in a network each parameter is, for learning rates by layer.
#pragma once
#include <cstdint>
#include <vector>

#include "models/module.h"

namespace frugal::models {

// For each of module.parameters(): 0 before the first block (embeddings, the first convolution),
// i + 1 in block i, and one more than the last block in the last layer, as timm counts. A norm
// behind the blocks counts to the last one, a reduction between two stages to the block that
// follows. Blocks are those of ViT, Swin, BERT, GPT-2, decoder and the ResNets; other networks have
// none.
std::vector<int64_t> layers_of(Module& module);

// decay^(depth of the last layer - depth), for each of module.parameters().
std::vector<double> layer_decay_factors(Module& module, double decay);

}  // namespace frugal::models
