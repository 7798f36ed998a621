#include "apps/cli/predict_boxes.h"

#include <algorithm>
#include <cstdio>

#include "apps/cli/signals.h"
#include "apps/config/data/data_kinds.h"
#include "autograd/record.h"
#include "core/words/quoted.h"
#include "models/detection/detector.h"
#include "train/tasks/detection.h"

namespace frugal::apps {
namespace {

// The number that the lists of the run's data give to a class.
int64_t number_of_class(const train::Model& model, int64_t label) {
  const auto& ids = model.description().category_ids;
  return label < static_cast<int64_t>(ids.size()) ? ids[static_cast<size_t>(label)] : label;
}

std::string name_of_class(const train::Model& model, int64_t label) {
  const auto& names = model.description().classes;
  const bool known =
      label < static_cast<int64_t>(names.size()) && !names[static_cast<size_t>(label)].empty();
  return known ? names[static_cast<size_t>(label)] : std::to_string(number_of_class(model, label));
}

// What the network finds in a file. Boxes are in pixels of the file.
models::Detections found_in_file(const std::string& path, const data::BoxBatchOptions& options,
                                 const train::Model& model) {
  data::BoxSet set;
  set.pictures.emplace_back();
  set.pictures[0].path = path;
  Batch batch = *data::BoxBatches(std::move(set), options).next();
  const Tensor sizes = find_tensor(batch.extras, "sizes");
  const Tensor file = find_tensor(batch.extras, "originals");
  batch = model.description().task->place(std::move(batch), model.network());
  models::Detector* const detector = model.network().as_detector();
  FRUGAL_ASSERT(detector != nullptr);
  Context context;
  context.training = false;
  context.set_model(model.network());
  const NoGrad no_grad;
  models::Detections found =
      detector->detect(Variable(std::move(batch.input)), sizes, context).front();
  const auto down = static_cast<float>(file.item(0) / sizes.item(0));
  const auto right = static_cast<float>(file.item(1) / sizes.item(1));
  for (auto& box : found.boxes)
    for (size_t k = 0; k < box.size(); ++k) box[k] *= k % 2 == 0 ? right : down;
  return found;
}

}  // namespace

void predict_boxes(const PredictArguments& arguments, const std::vector<std::string>& inputs,
                   const StoredRun& run, const train::Model& model) {
  if (arguments.tta != "none")
    throw ConfigError("", "--tta: expected none with a network that finds boxes");
  data::BoxBatchOptions options = box_options(run.config, false);
  options.batch_size = 1;
  options.skip_bad = false;
  size_t failed = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (signal_received() != 0)
      throw Interrupted(signal_received(), fmt::format("behind {} of {} inputs", i, inputs.size()));
    Json json = {{"input", inputs[i]}};
    models::Detections found;
    try {
      found = found_in_file(inputs[i], options, model);
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Error& e) {
      ++failed;
      std::string reason = e.what();
      reason.resize(std::min(reason.size(), reason.find("; data.skip_bad")));
      std::fflush(stdout);
      std::fprintf(stderr, "error: %s\n", without_controls(reason).c_str());
      json["error"] = reason;
    }
    Json boxes = Json::array();
    if (!arguments.json && !json.contains("error"))
      std::printf("%s\n", printable(inputs[i], 4096).c_str());
    for (size_t k = 0; k < found.boxes.size(); ++k) {
      const auto& box = found.boxes[k];
      const std::string name = name_of_class(model, found.labels[k]);
      if (arguments.json)
        boxes.push_back({{"box", box},
                         {"class", number_of_class(model, found.labels[k])},
                         {"name", name},
                         {"score", found.scores[k]}});
      else if (static_cast<int64_t>(k) < arguments.top)
        std::printf("  %6.2f %%  %7.1f %7.1f %7.1f %7.1f  %s\n",
                    100 * static_cast<double>(found.scores[k]), static_cast<double>(box[0]),
                    static_cast<double>(box[1]), static_cast<double>(box[2]),
                    static_cast<double>(box[3]), printable(name, 40).c_str());
    }
    if (!arguments.json) continue;
    if (!json.contains("error")) json["boxes"] = std::move(boxes);
    std::printf("%s\n", json.dump(-1, ' ', true, Json::error_handler_t::replace).c_str());
  }
  FRUGAL_CHECK(failed == 0, "[predict] {} of {} inputs have no prediction; each is named above",
               failed, inputs.size());
}

}  // namespace frugal::apps
