// What plans say to people and as JSON: `frugal plan`.
#pragma once
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "train/planning/recommend.h"

namespace frugal::apps {

// A table of 80 columns.
std::string text_of(const std::vector<train::WayMemory>& ways);
Json to_json(const std::vector<train::WayMemory>& ways);

std::string text_of(const std::vector<train::LargestOfWay>& ways, const std::string& what);
Json to_json(const std::vector<train::LargestOfWay>& ways);

struct Recommended {
  train::Recommendation found;
  std::string from;  // where the memory comes from: "--memory", "memory_limit", "free memory"
  const Config& config;
};
// What to set and why. Where no preset fits, also what the first of `ways` sets whose step does.
std::string text_of(const Recommended& given, const std::vector<train::WayMemory>& ways);
Json to_json(const Recommended& given);

}  // namespace frugal::apps
