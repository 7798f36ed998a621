#!/usr/bin/env bash
# CLI11 2.1.2 and 2.4.1: a whole number with a 0 in front is octal, so `-n 010` is 8. An option of double reads 10.
# Numbers with leading zeros come from `seq -w` and from dates: 01 to 07 are what they look like.
# Seen: 010 is 8 for int and 10 for double; 08 and 09 are errors, where CLI::Range(1, 20) checks the option with the
# message "Value 09 not in range 1 to 20" (2.4.1: "[1 - 20]").
# Frugal: apps/cli/command_line.cpp (whole) refuses such numbers; tests/apps/bad_input_test.cpp, "numbers on the command
# line are what they say".
. "$(dirname "$0")/packages.sh"
packages bookworm 'libcli11-dev=2.1.2*' g++ libc6-dev
packages trixie 'libcli11-dev=2.4.1*' g++ libc6-dev
for suite in bookworm trixie; do
  cat >"$work/$suite/tmp/octal.cpp" <<'END_OF_PROGRAM'
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

int main(int count, char** words) {
  CLI::App app;
  int whole = -1, checked = -1;
  double real = -1;
  app.add_option("--whole", whole);
  app.add_option("--checked", checked)->check(CLI::Range(1, 20));
  app.add_option("--real", real);
  try {
    app.parse(count, words);
  } catch (const CLI::Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  std::printf("%d %d %g\n", whole, checked, real);
}
END_OF_PROGRAM
  inside "$suite" g++ -O0 -std=c++17 /tmp/octal.cpp -o /tmp/octal || not_tried "the program does not compile"
  says() { (inside "$suite" /tmp/octal "$@" || true) | sed "s/^/$suite: /" | tee "$work/said"; }
  says --whole 010 --checked 010 --real 010
  expect "$suite: 010 is 8, and 10 for double" grep -qx "$suite: 8 8 10" "$work/said"
  says --whole 007 --checked 007 --real 007
  expect "$suite: 007 is 7" grep -qx "$suite: 7 7 7" "$work/said"
  says --whole 09
  expect "$suite: 09 is an error" grep -q "Could not convert" "$work/said"
  says --checked 09
  expect "$suite: the check says that 09 is not from 1 to 20" grep -q "09 not in range" "$work/said"
done
done_with_it
