#include "core/dynamic_library.h"

#include <dlfcn.h>

#include <utility>

#include "core/error.h"

namespace frugal {
namespace {

std::string last_error() {
  const char* const text = dlerror();
  return text != nullptr ? text : "no reason given";
}

}  // namespace

DynamicLibrary::DynamicLibrary(const std::vector<std::string>& names, std::string advice)
    : advice_(std::move(advice)) {
  std::string reasons;
  for (const std::string& name : names) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      name_ = name;
      return;
    }
    reasons += (reasons.empty() ? "" : "; ") + last_error();
  }
  throw Error(fmt::format("[library] expected the library {}, got none ({}); {}",
                          names.empty() ? "" : names.front(), reasons, advice_));
}

void* DynamicLibrary::address(const char* name) const {
  dlerror();
  void* const found = dlsym(handle_, name);
  if (found == nullptr)
    throw Error(fmt::format("[library] expected the function {} in {}, got none ({}); {}", name,
                            name_, last_error(), advice_));
  return found;
}

}  // namespace frugal
