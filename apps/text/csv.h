// Lines of CSV files.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace frugal::apps {

// The text as one field: in quotes, with its own quotes doubled, where a reader would take it for
// several.
std::string csv_field(std::string_view text);
std::string csv_line(const std::vector<std::string>& fields);  // with its end

}  // namespace frugal::apps
