// ConfigError: a mistake in a configuration or on the command line; the binary exits with 2.
#pragma once
#include <string>

#include "core/error.h"

namespace frugal::apps {

class ConfigError : public Error {
 public:
  // path: where in the JSON, joined by dots ("optim.momentum"); empty: the whole document.
  ConfigError(const std::string& path, const std::string& what)
      : Error(path.empty() ? what : path + ": " + what), path_(path) {}
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace frugal::apps
