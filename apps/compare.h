// `frugal compare`: finished runs side by side.
#pragma once
#include <string>
#include <vector>

namespace frugal::apps {

// A table of accuracy, memory with its breakdown at the peak, and speed, read from summary.json in
// each of `directories`; runs after the first show the ratio first / run.
// Errors: a directory without summary.json, or one that lacks a field, naming both.
std::string compare_runs(const std::vector<std::string>& directories);

}  // namespace frugal::apps
