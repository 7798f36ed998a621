// Patterns of parameters' names, as configurations give them.
#pragma once
#include <string>

namespace frugal::models {

// Does the name begin with the pattern, or does all of it fit the pattern, in which `*` stands for
// any text, `?` for one character and [...] for one of some? "layer1.", "*.bias", "*.bn?.*".
bool fits(const std::string& pattern, const std::string& name);

}  // namespace frugal::models
