#include "train/run/model_file.h"

#include <set>

#include "data/formats/safetensors.h"
#include "models/published_names.h"
#include "models/state.h"
#include "train/run/weights.h"

namespace frugal {

void save(Module& model, const std::string& path) {
  data::write_safetensors(path, models::state_views(model));
}

namespace {

LoadedNames names_of(models::StateNotes notes) {
  LoadedNames names{std::move(notes.reset), std::move(notes.left_out), {}};
  for (auto& [name, from, to] : notes.resized) names.resized.push_back(std::move(name));
  return names;
}

}  // namespace

LoadedNames load(Module& model, const std::string& path, const LoadOptions& options) {
  const auto weights = train::open_weights(path);
  models::StateOptions how{.reset_head = options.reset_head, .resize_positions = true};
  if (options.strict) return names_of(train::load_weights(model, weights, how));
  // A value that is missing in the file is taken from the model.
  LoadedNames names;
  const models::NamedTensors own = models::state_dict(model);
  const std::string head = options.reset_head ? model.head_prefix() : "";
  const auto is_reset = [&](const std::string& name) {
    return !head.empty() && name.starts_with(head);
  };
  std::set<std::string> wanted, found;
  for (const auto& [name, tensor] : own) wanted.insert(name);
  models::NamedTensors state;
  const models::NamedTensors published = train::read_weights(weights);
  for (auto& entry : models::as_named_today(
           published, [&](const std::string& name) { return wanted.contains(name); })) {
    if (!wanted.contains(entry.first) || is_reset(entry.first)) {
      names.unexpected.push_back(entry.first);
    } else {
      train::check_finite(path, entry.first, entry.second);
      found.insert(entry.first);
      state.push_back(std::move(entry));
    }
  }
  for (const auto& entry : own)
    if (!found.contains(entry.first)) {
      names.missing.push_back(entry.first);
      state.push_back(entry);
    }
  how = {.resize_positions = true, .sampling = models::sampling_of(published)};
  names.resized = names_of(models::load_state_dict(model, state, path, how)).resized;
  return names;
}

}  // namespace frugal
