// ConfigError: a mistake in a configuration or on the command line; the binary exits with 2.
#pragma once
#include "train/option_error.h"

namespace frugal::apps {

using namespace train;  // the program is made of the training library: its names need no prefix

// Its path is where the mistake is in the JSON, joined by dots ("optim.momentum"); empty: the whole
// document.
using ConfigError = train::OptionError;

// Calls `f`, whose OptionErrors are at the names of options. Their paths get the section before
// them.
template <class F>
auto at_section(const std::string& section, const F& f) {
  try {
    return f();
  } catch (const ConfigError& e) {
    throw ConfigError(section + "." + e.path(), e.reason());
  }
}

}  // namespace frugal::apps
