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

LoadedNames load(Module& model, const std::string& path, const LoadOptions& options) {
  const auto weights = train::open_weights(path);
  const models::StateOptions how{options.reset_head};
  if (options.strict) {
    models::StateNotes notes = train::load_weights(model, weights, how);
    return {std::move(notes.reset), std::move(notes.left_out)};
  }
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
  for (auto& entry : models::as_named_today(
           weights.read_all(), [&](const std::string& name) { return wanted.contains(name); })) {
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
  models::load_state_dict(model, state, path);
  return names;
}

}  // namespace frugal
