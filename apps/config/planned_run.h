// From a configuration to what plans of its run count and may vary, and back from what a plan found
// to keys.
#pragma once
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "train/planning/recommend.h"

namespace frugal::apps {

// REQUIRES: `config` is resolved, and its batches are those of one rank (share_of_rank()).
train::PlannedRun planned_run(const Config& config);
// How the run of a resolved configuration itself keeps activations.
train::Way way_of(const Config& config);

// The key that grows, such as "data.batch_size". The resolution is "data.image_size" if the run
// reads it, or else "data.shape". Errors (ConfigError): nothing in this run reads the key, as of
// the width of a network that has none, or the resolution of texts.
//   batch       by 8; 1 to 7 where 8 does not fit (rows of masks share bytes, so other batches
//               cannot be read in slices, which takes more)
//   layers      by 1; with ResNets from their own number on, by a block
//   width       by the number of heads; by 4 without heads
//   resolution  from 32 on: by 4, with Swin by 32, with ViT by the side of a patch; by 32 first,
//               see SearchRange
std::string key_of(const Config& config, train::Growth growth);

// "PATH=VALUE" each: the keys that make a run keep activations in this way.
std::vector<std::string> keys_of(const train::Way& way);
std::vector<std::string> keys_of(const train::Recommendation::Row& row, const Config& config);

}  // namespace frugal::apps
