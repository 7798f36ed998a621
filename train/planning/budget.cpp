#include "train/planning/budget.h"

#include <regex>

#include "core/words/quoted.h"
#include "train/option_error.h"
#include "train/planning/bytes.h"

namespace frugal::train {
namespace {

constexpr size_t kLongestBudget = 64;  // characters

}  // namespace

Budget parse_budget(const std::string& text, const std::string& path) {
  static const std::regex whole("(.*?)( activations)?"), ratio("([0-9.]+) */ *([0-9.]+)"),
      times("([0-9]+([.][0-9]+)?) *x"), percent("([0-9]+([.][0-9]+)?) *%"),
      number("[0-9]+([.][0-9]+)?");
  const auto wrong = [&] {
    return OptionError(
        path, fmt::format("expected bytes such as \"2 GiB\", or a share of what a step takes "
                          "without compression such as \"50%\", \"1/6\" or \"6x\"; with \" "
                          "activations\" behind it, only what is kept for the backward pass "
                          "counts; got {}",
                          in_quotes(text)));
  };
  // std::regex recurses for each character, so a long text would overflow the stack.
  if (text.size() > kLongestBudget) throw wrong();
  // So few digits are never out of a double's range.
  const auto number_of = [](const std::string& digits) { return std::stod(digits); };
  Budget budget;
  std::smatch parts, pieces;
  std::regex_match(text, parts, whole);
  budget.activations = parts[2].matched;
  const std::string amount = parts[1];
  if (std::regex_match(amount, pieces, times)) {
    budget.share = 1 / number_of(pieces[1]);
  } else if (std::regex_match(amount, pieces, percent)) {
    budget.share = number_of(pieces[1]) / 100;
  } else if (std::regex_match(amount, pieces, ratio)) {
    const std::string over = pieces[1], under = pieces[2];
    if (!std::regex_match(over, number) || !std::regex_match(under, number)) throw wrong();
    budget.share = number_of(over) / number_of(under);
  } else if (std::regex_match(amount, std::regex(kBytesPattern))) {
    budget.bytes = parse_bytes(amount, path);
    if (budget.bytes <= 0) throw wrong();
    return budget;
  } else {
    throw wrong();
  }
  if (!(budget.share > 0 && budget.share <= 1)) throw wrong();
  return budget;
}

}  // namespace frugal::train
