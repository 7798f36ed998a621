#include "compress/policies/levels.h"

#include <array>
#include <string>

#include "core/error.h"

namespace frugal::compress {
namespace {
constexpr std::array<Level, 10> kLevels = {
    {{"L0", 0, "activations are kept raw"},
     {"L1", 4, "activations in 4 bits"},
     {"L1.1", 8, "activations in 8 bits"},
     {"L1.2", 2, "activations in 2 bits"},
     {"L2", 4, "4 bits on average, by sensitivity", true},
     {"L2.1", 3, "3 bits on average, by sensitivity", true},
     {"L2.2", 2, "2 bits on average, by sensitivity", true},
     {"L3", 4, "L2, offloaded", true, true},
     {"CB1", 4, "L1 with checkpointing", false, false, true},
     {"CB2", 4, "CB1 with attention in tiles", false, false, true}}};
}  // namespace

std::span<const Level> levels() { return kLevels; }

const Level& parse_level(std::string_view name) {
  std::string known;
  for (const Level& level : kLevels) {
    if (level.name == name) return level;
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", level.name, level.summary);
  }
  throw Error(fmt::format("[compression] expected a level of {}, got \"{}\"", known, name));
}

}  // namespace frugal::compress
