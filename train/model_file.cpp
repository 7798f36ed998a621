#include "train/model_file.h"

#include <set>

#include "data/formats/safetensors.h"
#include "models/published_names.h"
#include "models/state.h"

namespace frugal {

void save(Module& model, const std::string& path) {
  data::write_safetensors(path, models::state_views(model));
}

LoadedNames load(Module& model, const std::string& path, const LoadOptions& options) {
  const auto file = data::SafetensorsFile::open(path);
  if (options.strict) {
    models::NamedTensors described;  // wrong files are found before their values are read
    for (const std::string& name : file.names()) {
      const data::SafetensorsInfo& info = file.info(name);
      described.emplace_back(name, Tensor::empty(info.shape, info.dtype, kMeta));
    }
    models::check_state_dict(model, described, path);
    models::load_state_dict(model, file.read_all(), path);
    return {};
  }
  // A value that is missing in the file is taken from the model.
  LoadedNames names;
  const models::NamedTensors own = models::state_dict(model);
  std::set<std::string> wanted, found;
  for (const auto& [name, tensor] : own) wanted.insert(name);
  models::NamedTensors state;
  for (auto& entry : models::as_named_today(
           file.read_all(), [&](const std::string& name) { return wanted.contains(name); })) {
    if (!wanted.contains(entry.first)) {
      names.unexpected.push_back(entry.first);
    } else {
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
