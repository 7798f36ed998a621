// What a network is shown while it is exported.
#pragma once
#include "apps/config/make_model.h"
#include "export/onnx_export.h"

namespace frugal::apps {

// Inputs of random values under the names that exported files give them:
//   images     input [batch, H, W, C] f32 (in the file [batch, C, H, W])
//   sequences  input_ids [batch, sequence] i64; attention_mask, token_type_ids where the data have
//              them
//   graphs     x [nodes, F] f32, edge_index [2, edges] i64 (from, to)
// Every call draws other values.
exports::OnnxInputs export_inputs(const BatchSpec& spec);

}  // namespace frugal::apps
