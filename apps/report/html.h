// Pages of HTML, and texts and numbers in them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "apps/json.h"

namespace frugal::apps {

// A text of a file in HTML, also in an attribute. Characters that are not printable become escapes
// (core/words/quoted.h); at most `limit` bytes are shown.
std::string escaped(std::string_view text, size_t limit = 300);

// Escapes each line of a text, however many there are.
std::string escaped_lines(std::string_view text);

// For <script type="application/json">, which no text can end.
std::string script_json(const Json& json);

// A whole page, which loads nothing and is light or dark as the reader likes. `made_of`: what its
// footer names, HTML. `scripted`: charts show values under the pointer, and tables can be sorted.
std::string html_page(const std::string& title, const std::string& body, const std::string& made_of,
                      bool scripted);

std::string short_number(double value);  // four digits: "0.01235", "12.5k"
std::string counted(int64_t value);      // "12,345"

}  // namespace frugal::apps
