#!/usr/bin/env bash
# doctest 2.4.9 and 2.4.11: Approx(x) compares by an epsilon that the manual calls relative. The tolerance is 1.2e-5
# times (1 + the larger of the two), so numbers below 1e-5 are all equal to each other and to 0, whatever their sign. A
# test of a small gradient, learning rate or code cannot fail. The 1 is the scale, which the manual offers for very
# small numbers without saying what it is. Infinity is not equal to Approx(infinity), since their difference is not a
# number.
# Seen: 1e-6 == Approx(9e-6), 0 == Approx(1e-5) and -1e-6 == Approx(1e-5) hold, and 1 == Approx(1.00003) does not. With
# .scale(0) 1e-6 is not Approx(9e-6). infinity == Approx(infinity) and infinity <= Approx(infinity) do not hold.
# Frugal: five comparisons in our tests took any number below 1e-5, and have .scale(0) now (tests/optim/adam8bit_test.cpp,
# tests/optim/optim_test.cpp, tests/apps/lr_find_test.cpp), and CONTRIBUTING.md, "Style", says when it is needed.
. "$(dirname "$0")/packages.sh"
packages bookworm 'doctest-dev=2.4.9*' g++
packages trixie 'doctest-dev=2.4.11*' g++
for suite in bookworm trixie; do
  cat >"$work/$suite/tmp/approx.cpp" <<'END_OF_PROGRAM'
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <cmath>
#include <cstdio>

using doctest::Approx;

int main() {
  const auto say = [](const char* what, bool holds) { std::printf("%s: %s\n", what, holds ? "yes" : "no"); };
  say("1e-6 == Approx(9e-6)", 1e-6 == Approx(9e-6));
  say("0 == Approx(1e-5)", 0 == Approx(1e-5));
  say("-1e-6 == Approx(1e-5)", -1e-6 == Approx(1e-5));
  say("1 == Approx(1.00003)", 1 == Approx(1.00003));
  say("1e-6 == Approx(9e-6).scale(0)", 1e-6 == Approx(9e-6).scale(0));
  say("9e-6 == Approx(9.00001e-6).scale(0)", 9e-6 == Approx(9.00001e-6).scale(0));
  say("infinity == Approx(infinity)", INFINITY == Approx(INFINITY));
  say("infinity <= Approx(infinity)", INFINITY <= Approx(INFINITY));
}
END_OF_PROGRAM
  inside "$suite" g++ -o /tmp/approx /tmp/approx.cpp
  inside "$suite" /tmp/approx | sed "s/^/$suite, /" | tee "$work/out"
  while read -r line; do expect "$suite, $line" grep -qxF "$suite, $line" "$work/out"; done <<'END_OF_LINES'
1e-6 == Approx(9e-6): yes
0 == Approx(1e-5): yes
-1e-6 == Approx(1e-5): yes
1 == Approx(1.00003): no
1e-6 == Approx(9e-6).scale(0): no
9e-6 == Approx(9.00001e-6).scale(0): yes
infinity == Approx(infinity): no
infinity <= Approx(infinity): no
END_OF_LINES
done
done_with_it
