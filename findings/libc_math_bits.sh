#!/usr/bin/env bash
# glibc 2.36: exp, log, sin, cos, tan, atan and tanh of double give other bits on processors with FMA than on those
# without, from one binary: it chooses among several compiled variants when a program starts. Those of float do not.
# Seen: hashes of the results for 1,000,000 arguments, as the processor is and with FMA hidden from the library, differ
# for all seven functions of double, and for none of expf, logf, sinf, cosf, exp2f, log2f.
# Frugal: core/random/draws.h draws normal numbers by polynomials of its own, whose bits tests/core/random/draws_test.cpp holds.
# docs/guide/troubleshooting.md ("Two runs differ") says that results depend on the processor's kind.
. "$(dirname "$0")/packages.sh"
grep -qw fma /proc/cpuinfo || not_tried "a processor without FMA"
packages bookworm 'libc6=2.36*' gcc libc6-dev
cat >"$work/bookworm/tmp/bits.c" <<'END'
#include <gnu/libc-version.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define ROW(f, number, word, low, high)                                    \
  {                                                                        \
    uint64_t hash = 1469598103934665603u;                                  \
    for (int i = 0; i < 1000000; ++i) {                                    \
      const number x = (number)(low + (high - low) * i / 1e6), y = f(x);   \
      word bits;                                                           \
      memcpy(&bits, &y, sizeof bits);                                      \
      hash = (hash ^ bits) * 1099511628211u;                               \
    }                                                                      \
    printf("%s %016llx\n", #f, (unsigned long long)hash);                  \
  }
#define DOUBLE(f, low, high) ROW(f, double, uint64_t, low, high)
#define FLOAT(f, low, high) ROW(f, float, uint32_t, low, high)

int main(void) {
  fprintf(stderr, "glibc %s\n", gnu_get_libc_version());
  DOUBLE(exp, -5, 5) DOUBLE(log, 0.01, 9) DOUBLE(sin, -9, 9) DOUBLE(cos, -9, 9)
  DOUBLE(tan, -9, 9) DOUBLE(atan, -9, 9) DOUBLE(tanh, -9, 9)
  FLOAT(expf, -5, 5) FLOAT(logf, 0.01, 9) FLOAT(sinf, -9, 9) FLOAT(cosf, -9, 9)
  FLOAT(exp2f, -5, 5) FLOAT(log2f, 0.01, 9)
}
END
inside bookworm gcc -O1 -fno-builtin /tmp/bits.c -o /tmp/bits -lm || not_tried "the program does not compile"
inside bookworm /tmp/bits >"$work/usual"
inside bookworm GLIBC_TUNABLES=glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2 /tmp/bits >"$work/without" 2>/dev/null
paste -d' ' "$work/usual" "$work/without" | awk '{ print $1, $2, $4, $2 == $4 ? "equal" : "other" }' | tee "$work/rows"
expect "functions of double have other bits without FMA" \
  [ "$(grep -cE '^(exp|log|sin|cos|tan|atan|tanh) .* other' "$work/rows")" -eq 7 ]
expect "those of float do not" [ "$(grep -cE 'f [0-9a-f]+ [0-9a-f]+ equal' "$work/rows")" -eq 6 ]
done_with_it
