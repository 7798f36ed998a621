// Lines that fit a terminal.
#pragma once
#include <string>
#include <vector>

namespace frugal::apps {

constexpr size_t kColumns = 80;  // what every table and message fits into, paths aside

// Words, with a space between two of them, in lines of at most kColumns columns. A word that is
// longer than a line has one of its own.
std::string wrapped(const std::vector<std::string>& words);

// Breaks the lines of a text that are longer, at spaces. What goes on begins below what the line
// itself begins with, or below the last of its columns, which two spaces part from what is before.
std::string wrapped(const std::string& text);

}  // namespace frugal::apps
