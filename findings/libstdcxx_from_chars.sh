#!/usr/bin/env bash
# libstdc++ of GCC 12 and 14: std::from_chars() calls a number that is closer to 0 than the type can hold an error, the
# one of a number that is too large, and writes nothing. strtof() and strtod() give 0 there. Files that other programs
# have written in double have such numbers: probabilities, weights that have decayed.
# Seen, as float and as double: 1e-45 and 5e-324 are read. 1e-46 as float, 2e-324 and 1e-400 as double are
# result_out_of_range, as 1e39 and 1e400 are, and the variable keeps its 7. 0e999 is 0. strtof() and strtod() give 0.
# Frugal: data/tables/csv_table.cpp and data/formats/table.cpp tell the two apart; tests/data/tables/csv_table_test.cpp,
# "csv: a number too large for f32 is an error with its place, one too small is 0".
. "$(dirname "$0")/packages.sh"
packages bookworm 'g++-12=12.2.0*'
packages trixie 'g++-14=14.2.0*'
cat >"$work/bookworm/tmp/numbers.cpp" <<'END_OF_PROGRAM'
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>

template <class T>
void show(const char* type, const std::string& text, T other) {
  T value = 7;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool beyond = read.ec == std::errc::result_out_of_range;
  std::printf("%s as %s: %s, %g; strto: %g\n", text.c_str(), type,
              read.ec == std::errc() ? "read" : beyond ? "out of range" : "invalid", value, other);
}

int main() {
  for (const char* text : {"1e-45", "1e-46", "1e39", "0e999"}) show("float", text, std::strtof(text, nullptr));
  for (const char* text : {"5e-324", "2e-324", "1e-400", "1e400", "0e999"})
    show("double", text, std::strtod(text, nullptr));
}
END_OF_PROGRAM
cp "$work/bookworm/tmp/numbers.cpp" "$work/trixie/tmp"
for suite in bookworm trixie; do
  compiler=g++-12
  [ "$suite" = bookworm ] || compiler=g++-14
  inside "$suite" $compiler -std=c++17 /tmp/numbers.cpp -o /tmp/numbers || not_tried "the program does not compile"
  inside "$suite" /tmp/numbers | sed "s/^/$suite, /" | tee "$work/out"
  for line in '1e-45 as float: read, 1.4013e-45; strto: 1.4013e-45' '1e-46 as float: out of range, 7; strto: 0' \
    '1e39 as float: out of range, 7; strto: inf' '0e999 as float: read, 0; strto: 0' \
    '5e-324 as double: read, 4.94066e-324; strto: 4.94066e-324' '2e-324 as double: out of range, 7; strto: 0' \
    '1e-400 as double: out of range, 7; strto: 0' '1e400 as double: out of range, 7; strto: inf'; do
    expect "$suite, $line" grep -qxF "$suite, $line" "$work/out"
  done
done
done_with_it
