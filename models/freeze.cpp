#include "models/freeze.h"

#include <utility>

#include "core/words/quoted.h"
#include "models/name_pattern.h"

namespace frugal {

std::vector<std::string> freeze(Module& model, const std::vector<std::string>& patterns,
                                const FreezeOptions& options) {
  const std::vector<Module::NamedParameter> parameters = model.parameters();
  std::vector<bool> frozen(parameters.size(), false);
  for (const std::string& entry : patterns) {
    const bool all = entry == kAllButHead, out = entry.starts_with("!");
    const std::string head = all ? model.head_prefix() : "",
                      pattern = out ? entry.substr(1) : entry;
    FRUGAL_CHECK(!all || !head.empty(),
                 "[freeze] expected patterns of names, since this network has no head of its own, "
                 "got {}",
                 in_quotes(entry));
    bool found = false;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const std::string& name = parameters[i].name;
      const bool fits =
          all ? !name.starts_with(head) : !pattern.empty() && models::fits(pattern, name);
      if (!fits) continue;
      found = true;
      frozen[i] = !out;
    }
    FRUGAL_CHECK(found, "[freeze] expected a pattern that fits a parameter, such as {}, got {}",
                 parameters.empty() ? "none" : in_quotes(parameters.front().name),
                 in_quotes(entry));
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (frozen[i]) names.push_back(parameters[i].name);
  FRUGAL_CHECK(names.empty() || names.size() < parameters.size(),
               "[freeze] expected a parameter that is left to train, got patterns that fit all {}",
               parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i)
    if (frozen[i] && parameters[i].parameter->requires_grad()) {
      parameters[i].parameter->set_requires_grad(false);
      *parameters[i].frozen = true;
    }
  if (!names.empty()) model.keep_frozen_statistics(options.keep_statistics);
  return names;
}

bool thaw(Module& model) {
  bool any = false;
  for (const Module::NamedParameter& p : model.parameters()) {
    if (!std::exchange(*p.frozen, false)) continue;
    p.parameter->set_requires_grad(true);
    any = true;
  }
  return any;
}

}  // namespace frugal
