#include "optim/registry.h"

#include <algorithm>

#include "core/words/quoted.h"
#include "optim/optimizers.h"
#include "optim/option_keys.h"

namespace frugal::optim {
namespace {

using by_name::Key, by_name::Options, by_name::Value;

// An optimizer with options for state in 8 bits takes `state`, unless it keeps none so.
void take_state(BlockwiseOptions& own, const BlockwiseOptions& state) { own = state; }
void take_state(std::optional<BlockwiseOptions>& own, const BlockwiseOptions& state) {
  if (own) own = state;
}

template <class O, class S>
Kind kind_of(const char* name, const S& own = {}) {
  Kind kind;
  kind.name = name;
  for (const by_name::Option<S>& each : S::list()) kind.keys.push_back(each.key);
  kind.make = [own](const std::vector<ParameterGroup>& groups, const Options& given,
                    const BlockwiseOptions& state) -> std::unique_ptr<Optimizer> {
    S some = own;
    set_options(some, S::list(), given);
    if constexpr (requires { some.state; }) take_state(some.state, state);
    return std::make_unique<O>(groups, some);
  };
  kind.usual = [own](const std::string& key) {
    for (const by_name::Option<S>& each : S::list())
      if (key == each.key.name) return each.get(own);
    return Value();
  };
  return kind;
}

}  // namespace

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      kind_of<Sgd, SgdOptions>("sgd"),
      kind_of<Sgd8bit, Sgd8bitOptions>("sgd_8bit"),
      kind_of<Adam, AdamOptions>("adam", {.decoupled = false}),
      kind_of<Adam, AdamOptions>("adamw"),
      kind_of<Adam8bit, Adam8bitOptions>("adamw_8bit"),
      kind_of<Lamb, LambOptions>("lamb"),
      kind_of<Lars, LarsOptions>("lars"),
      kind_of<Adafactor, AdafactorOptions>("adafactor"),
      kind_of<Lion, LionOptions>("lion"),
      kind_of<Lion, LionOptions>("lion_8bit", {.state = BlockwiseOptions()}),
  };
  return all;
}

bool Kind::has(const std::string& key) const {
  return std::any_of(keys.begin(), keys.end(), [&](const Key& each) { return key == each.name; });
}

std::string Kind::momentum() const {
  for (const Key& key : {keys::kMomentum, keys::kBeta1})
    if (has(key.name)) return key.name;
  return "";
}

const Kind& kind(const std::string& name) {
  std::vector<std::string> names;
  for (const Kind& each : kinds()) {
    if (each.name == name) return each;
    names.push_back(each.name);
  }
  throw OptionError("name", fmt::format("expected an optimizer, one of {}; got {}",
                                        fmt::join(names, ", "), in_quotes(name)));
}

std::vector<Key> all_keys() {
  std::vector<Key> all;
  for (const Kind& each : kinds())
    for (const Key& key : each.keys)
      if (std::none_of(all.begin(), all.end(),
                       [&](const Key& k) { return std::string_view(k.name) == key.name; }))
        all.push_back(key);
  return all;
}

std::unique_ptr<Optimizer> make(const std::string& name, const std::vector<ParameterGroup>& groups,
                                const Options& given, const BlockwiseOptions& state) {
  const Kind& wanted = kind(name);
  for (const auto& [key, value] : given) {
    if (wanted.has(key)) continue;
    std::vector<std::string> known;
    for (const Key& each : wanted.keys) known.emplace_back(each.name);
    throw OptionError(printable(key), fmt::format("expected an option of {}, one of {}; got {}",
                                                  name, fmt::join(known, ", "), in_quotes(key)));
  }
  return wanted.make(groups, given, state);
}

}  // namespace frugal::optim
