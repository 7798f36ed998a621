#include "train/planning/bytes.h"

#include <cmath>

#include "core/error.h"
#include "core/words/quoted.h"
#include "train/option_error.h"

namespace frugal::train {
namespace {

constexpr const char* kBinaryUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

struct InUnit {
  double value;
  size_t power;  // the unit is 1024 to this power
};

// Takes the smallest unit in which the value is below `limit`, but none above the power `most`.
InUnit in_binary_unit(double bytes, double limit, size_t most) {
  InUnit found{bytes, 0};
  for (; found.value >= limit && found.power < most; ++found.power) found.value /= 1024;
  return found;
}

}  // namespace

std::string readable_bytes(int64_t bytes) {
  const auto [value, power] = in_binary_unit(static_cast<double>(bytes), 1024, 3);
  return fmt::format("{:.{}f} {}", value, power == 0 ? 0 : power < 3 ? 1 : 2, kBinaryUnits[power]);
}

std::string short_bytes(int64_t bytes) {
  const auto [value, power] =
      in_binary_unit(static_cast<double>(bytes), 999.5, 5);  // 999.5 becomes 1000
  const int digits = power == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  const std::string unit(power == 0 ? 0U : 1U, *kBinaryUnits[power]);
  return fmt::format("{:.{}f}{}", value, digits, unit);
}

std::string round_bytes(double bytes) {
  const auto [value, power] = in_binary_unit(bytes, 1024, 6);
  return fmt::format("{:.4g} {}", value, kBinaryUnits[power]);
}

std::string decimal_bytes(double bytes) {
  return bytes >= 1e9   ? fmt::format("{:.2f} GB", bytes / 1e9)
         : bytes >= 1e6 ? fmt::format("{:.1f} MB", bytes / 1e6)
                        : fmt::format("{:.1f} kB", bytes / 1e3);
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
  // The first letter alone says the power. A "B" has the power 0.
  const size_t place = unit.empty() ? std::string::npos : std::string("kmgtKMGT").find(unit[0]);
  const double power = place == std::string::npos ? 0 : static_cast<double>(place % 4 + 1);
  const double factor = std::pow(unit.size() == 2 ? 1000.0 : 1024.0, power);
  if (amount * factor >= 9.2e18)
    throw OptionError(path, "expected less than 8 EiB, got " + printable(text));
  return static_cast<int64_t>(amount * factor);
}

}  // namespace frugal::train
