// OptionError: an option with a value that it cannot have, alone or beside the others.
#pragma once
#include <string>

#include "core/error.h"

namespace frugal {

class OptionError : public Error {
 public:
  // path: the option, joined by dots ("compression.memory_budget"); empty: no single one.
  OptionError(const std::string& path, const std::string& what)
      : Error(path.empty() ? what : path + ": " + what), path_(path), reason_(what) {}
  const std::string& path() const { return path_; }
  const std::string& reason() const { return reason_; }  // the message without the path

 private:
  std::string path_, reason_;
};

}  // namespace frugal
