#include "data/part.h"

#include "core/error.h"
#include "core/words/quoted.h"

namespace frugal::data {

std::vector<std::string> part_names(Part part) {
  switch (part) {
    case Part::train:
      return {"train"};
    case Part::validation:
      return {"val", "valid", "validation"};
    case Part::test:
      break;
  }
  return {"test"};
}

std::string only_one(const std::string& op, const std::vector<std::string>& there) {
  if (there.empty()) return "";
  FRUGAL_CHECK(
      there.size() == 1,
      "[{}] expected one file or folder for a part of the data, got {} and {}; take one of "
      "them away",
      op, in_quotes(there[0]), in_quotes(there[1]));
  return there[0];
}

}  // namespace frugal::data
