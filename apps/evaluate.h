// A model's loss and accuracy on a dataset.
#pragma once
#include <functional>
#include <optional>

#include "apps/run_state.h"
#include "data/loader.h"
#include "models/module.h"

namespace frugal::apps {

// One pass in evaluation mode over `loader`, which is put back to its beginning first. Nothing when
// `stop` said so between two batches.
std::optional<Evaluation> evaluate(Module& model, data::Loader& loader,
                                   const std::function<bool()>& stop = {});

Json to_json(const Evaluation& evaluation);  // {"loss", "accuracy", "samples"}

}  // namespace frugal::apps
