// DynamicLibrary: a library that is opened when the program first needs it. So a program starts
// where the library is missing. Thread-safe. Never closed.
#pragma once
#include <string>
#include <vector>

namespace frugal {

class DynamicLibrary {
 public:
  // Opens the first of `names` that the system finds; a name may be a path. `advice` ends the
  // message of an error.  Errors: none of them can be opened; the message says why for each.
  DynamicLibrary(const std::vector<std::string>& names, std::string advice);

  // The address of a function.  Errors: the library has none of this name.
  template <class F>
  F function(const char* name) const {
    return reinterpret_cast<F>(address(name));
  }

 private:
  void* address(const char* name) const;

  void* handle_ = nullptr;
  std::string name_, advice_;
};

}  // namespace frugal
