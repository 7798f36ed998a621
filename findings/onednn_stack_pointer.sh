#!/usr/bin/env bash
# oneDNN 2.6.3: while its f32 matrix product for AVX2 runs, the stack pointer holds the address of a buffer that is not
# the stack. A handler of a signal that has no stack of its own then writes below that address, into what lies there.
# Seen: valgrind's "client switching stacks? SP change: 0x1fff000368 --> 0x76cb000" in a product of one thread, and
# back; with kernels for SSE4.1 there is no such line. Nothing fails here, since no signal comes.
# Frugal: apps/cli/signals.cpp gives handlers a stack (a test in tests/apps/train_test.cpp); docs/guide/embedding.md.
. "$(dirname "$0")/packages.sh"
grep -q avx2 /proc/cpuinfo || not_tried "a processor without AVX2"
packages bookworm 'libdnnl-dev=2.6.3*' gcc libc6-dev 'valgrind=1:3.19.0*' libc6-dbg
cat >"$work/bookworm/tmp/product.c" <<'END'
#include <dnnl.h>
#include <stdlib.h>
int main(void) {
  enum { N = 256 };
  float *a = calloc(N * N, sizeof *a), *b = calloc(N * N, sizeof *b), *c = calloc(N * N, sizeof *c);
  return dnnl_sgemm('N', 'N', N, N, N, 1, a, N, b, N, 0, c, N) != dnnl_success;
}
END
inside bookworm gcc /tmp/product.c -o /tmp/product -ldnnl || not_tried "the program does not compile"
switches() {  # ISA: prints the lines
  inside bookworm ONEDNN_MAX_CPU_ISA="$1" OMP_NUM_THREADS=1 valgrind /tmp/product >"$work/out" 2>&1 ||
    not_tried "valgrind: $(tail -n 3 "$work/out")"
  grep "switching stacks" "$work/out" || true
}
avx2=$(switches AVX2) sse41=$(switches SSE41)
echo "AVX2: ${avx2:-no line}"
echo "SSE4.1: ${sse41:-no line}"
expect "the product for AVX2 runs with another stack pointer" [ -n "$avx2" ]
expect "that for SSE4.1 does not" [ -z "$sse41" ]
done_with_it
