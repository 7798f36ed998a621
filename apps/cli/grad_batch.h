// The batch of `frugal grad`, from a safetensors file.
#pragma once
#include <string>

#include "apps/config/make_model.h"
#include "data/formats/safetensors_shards.h"

namespace frugal::apps {

// By what the network reads:
//   images     input [N, C, H, W] or [N, F] f32, target [N] i64
//   images with a class for each pixel
//              input [N, C, H, W] f32, target [N, H, W] i64, where 255 does not count
//   images of detection networks: input [N, C, H, W] f32, and for picture I boxes.I [n, 4] f32 (x1,
//              y1, x2, y2 in pixels) and labels.I [n] i64; all of them are needed
//   sequences  input_ids [N, T] i64; attention_mask, token_type_ids, position_ids [N, T] i64;
//              target [N] or [N, T] i64, where -100 does not count
//   graphs     x [V, F] f32, edge_index [2, E] i64; edge_weight [E] f32; mask [V] bool or u8, the
//              nodes whose target [V] i64 counts
// Only the first tensor (with graphs the first two) must be there. Without a target, the batch's is
// undefined.
// Errors: a tensor that is none of these, missing, or of another shape or dtype.
Batch read_grad_batch(const std::string& path, Family family);

// What the batch and the weights tell of the network: extents of the batch; classes and vocabulary
// from the shapes of the weights. Fills config.model where it is null.
// Errors: weights without a classifier or token embedding.
BatchSpec spec_of_batch(const Batch& batch, const data::SafetensorsShards& weights, Config& config);

}  // namespace frugal::apps
