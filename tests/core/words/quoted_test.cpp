#include "core/words/quoted.h"

#include <doctest/doctest.h>

using namespace frugal;

TEST_CASE("texts of files are shown without what moves a cursor, and shortened") {
  CHECK(printable("fc.weight") == "fc.weight");
  CHECK(printable("a\x1b[2Jb\n\tc\r") == "a\\x1b[2Jb\\n\\tc\\x0d");
  CHECK(printable(std::string("a\0b", 3)) == "a\\x00b");
  CHECK(printable("\x7f") == "\\x7f");
  CHECK(printable("gr\xc3\xbc\xc3\x9f \xe4\xb8\xad \xf0\x9f\x98\x80") ==
        "gr\xc3\xbc\xc3\x9f \xe4\xb8\xad \xf0\x9f\x98\x80");
  CHECK(printable("\xc2\x9b"
                  "2J") == "\\xc2\\x9b2J");  // CSI in one character
  CHECK(printable("\xe2\x80\xae"
                  "abc") ==
        "\\xe2\\x80\\xae"
        "abc");  // from right to left
  CHECK(printable("\xff\xc3(\xed\xa0\x80\xc0\xaf") ==
        "\\xff\\xc3(\\xed\\xa0\\x80\\xc0\\xaf");  // no UTF-8
  CHECK(printable("\xe4\xb8") == "\\xe4\\xb8");   // cut
  const std::string most(100, 'x');
  CHECK(printable(most) == most);
  const std::string cut = printable(most + 'x');
  CHECK(cut.size() == 103);
  CHECK(cut.ends_with("x..."));
  CHECK(printable("ab\xc3\xbc", 3) == "ab...");  // never half a character
  CHECK(in_quotes("say \"\\\"") == "\"say \\\"\\\\\\\"\"");
  CHECK(without_controls("two\nlines\x1b[0m") == "two\nlines\\x1b[0m");
  CHECK(without_controls("\n\ta\n") == "\n\ta\n");
  CHECK(without_controls("").empty());
  CHECK(without_controls(std::string(5000, 'y')).size() == kLongestLine + 3);
  CHECK(without_controls(most + "\n" + std::string(1500, 'y')).size() == 1601);
}

TEST_CASE("texts in a list are shortened, and there may be none") {
  CHECK(some_of({"a", "b"}, 2) == "a, b");
  CHECK(some_of({"a", "b\n", "c"}, 1) == "a, and 2 more");
  CHECK(some_of({"a", "b\n", "c"}, 2, "\n ") == "a\n b\\n\n and 1 more");
  CHECK(some_of({}, 2) == "none");
}

TEST_CASE("words of a shell's command line have quotes where they need them") {
  CHECK(shell_word("runs/a-1_b.c:d,e=f+2") == "runs/a-1_b.c:d,e=f+2");
  CHECK(shell_word("") == "''");
  CHECK(shell_word("a b") == "'a b'");
  CHECK(shell_word("it's $HOME") == "'it'\\''s $HOME'");
  CHECK(shell_line({"ls", "a b", ""}) == "ls 'a b' ''");
  CHECK(shell_line({}).empty());
}
