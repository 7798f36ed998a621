// Checkpoint: what a run resumes from.
#pragma once
#include <string>

#include "core/named_tensors.h"
#include "models/module.h"
#include "optim/optimizer.h"
#include "train/compression_state.h"
#include "train/ranks/ranks.h"
#include "train/run/run_state.h"

namespace frugal::train {

// Any number of ranks goes on from it. What codes of gradients lost so far (`exchange`) is known by
// rank, and another number of ranks adds it up.
struct Checkpoint {
  RunState state;
  CompressionState compression;
  NamedTensors model, optimizer;  // Module's state and Optimizer::state(), on the host
  NamedTensors exchange;          // GradientExchange::state()
  std::string path;               // names the file in messages
};

// The checkpoint of rank 0, on all ranks.
void share(const Ranks& ranks, Checkpoint& checkpoint);
// Fills the model and the optimizer.  Errors: tensors that do not fit them; weights that are not
// finite.
void apply(const Checkpoint& checkpoint, Module& model, Optimizer& optimizer);

// What steers compression, of rank 0, on all ranks.
void share(const Ranks& ranks, CompressionState& state);
// What the policies of all ranks learned, by rank, without Learned::arrays.
std::vector<compress::Learned> gather(const Ranks& ranks, const compress::Learned& learned);

}  // namespace frugal::train
