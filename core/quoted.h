// Texts from files, configurations and servers in messages: what they hold never reaches a terminal
// as it is, because it may be an escape sequence, a new line, or a megabyte long.
#pragma once
#include <string>
#include <string_view>

namespace frugal {

constexpr size_t kShown = 100;  // bytes of such a text that a message shows

// At most `limit` bytes of `text`, with "..." where it goes on. Characters that are no printable
// UTF-8 become \n, \t or \xHH for each byte: controls, characters that change the direction of
// text or have no width, and bytes that are no UTF-8.
std::string printable(std::string_view text, size_t limit = kShown);

// The same in quotes; quotes and backslashes get a backslash before them.
std::string in_quotes(std::string_view text, size_t limit = kShown);

// A whole message, as the last step before a terminal: the same of each of its lines, which are cut
// at kLongestLine bytes alone; tabs stay.
constexpr size_t kLongestLine = 2000;
std::string without_controls(std::string_view message);

}  // namespace frugal
