// Texts of files, configurations and servers in messages. Such a text never reaches a terminal as
// it is: it may be an escape sequence, hold line ends, or be a megabyte long. Also words of command
// lines that a message shows.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace frugal {

constexpr size_t kShown = 100;  // bytes of such a text that a message shows

// At most `limit` bytes of `text`, followed by "..." if the text is longer. A character that is not
// printable UTF-8 becomes \n, \t or one \xHH for each byte. These are control characters,
// characters that change the direction of text or have no width, and bytes that are not UTF-8.
std::string printable(std::string_view text, size_t limit = kShown);

// printable() in quotes. Quotes and backslashes get a backslash before them.
std::string in_quotes(std::string_view text, size_t limit = kShown);

// Escapes a whole message just before it reaches a terminal: each line is made printable as above
// and is cut at kLongestLine bytes. Line ends and tabs stay.
constexpr size_t kLongestLine = 2000;
std::string without_controls(std::string_view message);

// The first `most` texts, printable, with `between` between them. If there are more, `between` and
// "and 3 more" follow. Without texts it is "none".
std::string some_of(const std::vector<std::string>& texts, size_t most,
                    std::string_view between = ", ");

// A word of a shell's command line, in quotes where a shell would read something else.
std::string shell_word(std::string_view word);
// Words with spaces between them.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace frugal
