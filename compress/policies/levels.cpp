#include "compress/policies/levels.h"

#include <string>

#include "core/error.h"

namespace frugal::compress {
namespace {

constexpr Level kGact[] = {
    {.name = "L0", .summary = "activations are kept raw"},
    {.name = "L1", .bits = 4, .summary = "activations in 4 bits"},
    {.name = "L1.1", .bits = 8, .summary = "activations in 8 bits"},
    {.name = "L1.2", .bits = 2, .summary = "activations in 2 bits"},
    {.name = "L2", .bits = 4, .summary = "4 bits on average, by sensitivity", .adaptive = true},
    {.name = "L2.1", .bits = 3, .summary = "3 bits on average, by sensitivity", .adaptive = true},
    {.name = "L2.2", .bits = 2, .summary = "2 bits on average, by sensitivity", .adaptive = true},
    {.name = "L3", .bits = 4, .summary = "L2, offloaded", .adaptive = true, .offload = true},
    {.name = "CB1", .bits = 4, .summary = "L1 with checkpointing", .checkpointing = true},
    {.name = "CB2", .summary = "CB1", .same_as = "CB1"}};

constexpr Level kActnn[] = {
    {.name = "L0", .summary = "activations are kept raw"},
    {.name = "L1", .bits = 4, .summary = "what products read in 4 bits", .products_only = true},
    {.name = "L2", .bits = 4, .summary = "activations in 4 bits"},
    {.name = "L2.5",
     .bits = 2,
     .summary = "2 bits on average, by tensor",
     .adaptive = true,
     .by_sample = false},
    {.name = "L3", .bits = 2, .summary = "2 bits on average, by sample", .adaptive = true},
    {.name = "L4", .bits = 2, .summary = "L3, offloaded", .adaptive = true, .offload = true},
    {.name = "L5", .summary = "L4", .same_as = "L4"}};

}  // namespace

std::span<const Level> levels(LevelsOf policy) {
  switch (policy) {
    case LevelsOf::gact:
      return kGact;
    case LevelsOf::actnn:
      break;
  }
  return kActnn;
}

const Level& level(std::string_view name, LevelsOf policy) {
  std::string known;
  for (const Level& each : levels(policy)) {
    if (each.name == name) return each.same_as.empty() ? each : level(each.same_as, policy);
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", each.name, each.summary);
  }
  throw Error(fmt::format("[{}] expected a level of {}, got \"{}\"",
                          policy == LevelsOf::gact ? "compression" : "actnn", known, name));
}

}  // namespace frugal::compress
