// Remembers, from run to run, which choice was measured to be the fastest for a problem. The file
// has one line for each problem: "problem<tab>choice". Nothing is remembered unless a file is
// named. Thread-safe.
#pragma once
#include <optional>
#include <string>

namespace frugal::ops::autotune {

// Names the file; an empty path turns remembering off. The default is the environment variable
// FRUGAL_AUTOTUNE. A file of another format is ignored with a warning, and the first choice
// replaces it.
void set_file(const std::string& path);
bool enabled();

std::optional<std::string> find(const std::string& problem);
// REQUIRES: neither text holds a tab or a line end. Written at once, to a new file that then
// replaces the old one. If the file cannot be written, one warning says so.
void remember(const std::string& problem, const std::string& choice);

}  // namespace frugal::ops::autotune
