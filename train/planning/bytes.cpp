#include "train/planning/bytes.h"

#include <cmath>

#include "core/error.h"
#include "core/quoted.h"
#include "train/option_error.h"

namespace frugal::train {

std::string readable_bytes(int64_t bytes) {
  const auto b = static_cast<double>(bytes);
  if (bytes < (1 << 10)) return fmt::format("{} B", bytes);
  if (bytes < (1 << 20)) return fmt::format("{:.1f} KiB", b / (1 << 10));
  if (bytes < (1 << 30)) return fmt::format("{:.1f} MiB", b / (1 << 20));
  return fmt::format("{:.2f} GiB", b / (1 << 30));
}

int64_t parse_bytes(const std::string& text, const std::string& path) {
  size_t used = 0;
  double amount = 0;
  try {
    amount = std::stod(text, &used);
  } catch (const std::out_of_range&) {
    throw OptionError(path,
                      fmt::format("expected bytes, got a number too long: {}", in_quotes(text)));
  }
  std::string unit = text.substr(used);
  unit.erase(0, unit.find_first_not_of(' ') == std::string::npos ? unit.size()
                                                                 : unit.find_first_not_of(' '));
  double factor = 1;
  if (unit.size() > 1) {
    const auto power = static_cast<double>(std::string("KMGT").find(unit[0]) + 1);
    factor = std::pow(unit.size() == 3 ? 1024.0 : 1000.0, power);
  }
  if (amount * factor >= 9.2e18)
    throw OptionError(path, "expected less than 8 EiB, got " + printable(text));
  return static_cast<int64_t>(amount * factor);
}

}  // namespace frugal::train
