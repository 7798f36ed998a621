// What measuring has shown to be fastest, remembered in a file from run to run: one line for each
// problem, "problem<tab>choice". Off unless a file is named. Thread-safe.
#pragma once
#include <optional>
#include <string>

namespace frugal::ops::autotune {

// Empty: off. The default is the environment's FRUGAL_AUTOTUNE. A file that is not one of ours is
// ignored, with a warning, and written anew by the first choice.
void set_file(const std::string& path);
bool enabled();

std::optional<std::string> find(const std::string& problem);
// REQUIRES: neither holds a tab or a line's end. Written at once, to a new file that takes the old
// one's place; a file that cannot be written is told of, once.
void remember(const std::string& problem, const std::string& choice);

}  // namespace frugal::ops::autotune
