// `frugal predict` with a network that finds boxes.
#pragma once
#include "apps/cli/commands.h"
#include "apps/config/stored_run.h"
#include "train/run/model.h"

namespace frugal::apps {

// Prints a line for each picture, with --json as JSON: {"input": path, "boxes": [{"box": [x1, y1,
// x2, y2], "class": 1, "name": "cat", "score": 0.9}, ...]}, in pixels of the file, by falling
// score. Without --json it prints the best --top boxes. A picture that cannot be read gets an error
// instead. Errors: no picture could be read, or one of several; --tta.
void predict_boxes(const PredictArguments& arguments, const std::vector<std::string>& inputs,
                   const StoredRun& run, const train::Model& model);

}  // namespace frugal::apps
