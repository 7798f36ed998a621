#!/usr/bin/env bash
# oneDNN 2.6.3 and 3.7.2 cut an f32 matrix product into as many parts as omp_get_max_threads() says, and compute as many
# as there are threads. OpenMP may give fewer: OMP_THREAD_LIMIT, OMP_DYNAMIC=true and OMP_MAX_ACTIVE_LEVELS=0 do not
# change what omp_get_max_threads() says (OpenMP 5.2, "Determining the number of threads for a parallel region"). The
# rest of the result is not written, without an error, and what stood in that memory is taken for numbers. The kernels
# for SSE4.1 are right, as are those for AVX2 with 1,000 rows.
# Seen, 256 x 256 ones times ones with the kernels for AVX2 and OMP_NUM_THREADS=4, in a result that held 7 before: with
# OMP_THREAD_LIMIT=8 all 65,536 elements are 256. With OMP_THREAD_LIMIT=2 half of them are 7, and with
# OMP_THREAD_LIMIT=1 or OMP_MAX_ACTIVE_LEVELS=0 three quarters. With OMP_THREAD_LIMIT=1 and
# omp_set_num_threads(omp_get_thread_limit()) before, all are 256.
# Frugal: trained on what stood in memory, or stopped with NaN, where one of these was set. core/parallel.cpp
# (num_threads) makes OpenMP and oneDNN agree before a product; tests/apps/spin_test.cpp, "a run is right where OpenMP
# gives fewer threads than it says".
. "$(dirname "$0")/packages.sh"
grep -q avx2 /proc/cpuinfo || not_tried "a processor without AVX2"
packages bookworm 'libdnnl-dev=2.6.3*' g++
packages trixie 'libdnnl-dev=3.7.2*' g++
for suite in bookworm trixie; do
  cat >"$work/$suite/tmp/fewer.cpp" <<'END_OF_PROGRAM'
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <dnnl.hpp>
#include <vector>

using namespace dnnl;

int main(int argc, char**) {
  if (argc > 1) omp_set_num_threads(omp_get_thread_limit());
  const engine cpu(engine::kind::cpu, 0);
  stream on(cpu);
  const auto f32 = memory::data_type::f32;
  const memory::dim n = 256;
  const memory::desc square({n, n}, f32, memory::format_tag::ab);
  std::vector<float> ones(n * n, 1), product(n * n, 7);
#if DNNL_VERSION_MAJOR >= 3
  const matmul::primitive_desc how(cpu, square, square, square);
#else
  const matmul::primitive_desc how(matmul::desc(square, square, square), cpu);
#endif
  matmul(how).execute(on, {{DNNL_ARG_SRC, memory(square, cpu, ones.data())},
                           {DNNL_ARG_WEIGHTS, memory(square, cpu, ones.data())},
                           {DNNL_ARG_DST, memory(square, cpu, product.data())}});
  on.wait();
  std::printf("%ld right, %ld untouched\n", long(std::count(product.begin(), product.end(), float(n))),
              long(std::count(product.begin(), product.end(), 7.0F)));
}
END_OF_PROGRAM
  inside "$suite" g++ -O1 -fopenmp /tmp/fewer.cpp -o /tmp/fewer -ldnnl || not_tried "the program does not compile"
  check() {  # SETTING RESULT [ARGUMENT]
    local found
    found=$(inside "$suite" OMP_NUM_THREADS=4 ONEDNN_MAX_CPU_ISA=AVX2 "$1" /tmp/fewer "${@:3}")
    echo "$suite, $1 ${*:3}: $found"
    expect "$suite, $1 ${*:3}" [ "$found" = "$2" ]
  }
  check OMP_THREAD_LIMIT=8 '65536 right, 0 untouched'
  check OMP_THREAD_LIMIT=2 '32768 right, 32768 untouched'
  check OMP_THREAD_LIMIT=1 '16384 right, 49152 untouched'
  check OMP_MAX_ACTIVE_LEVELS=0 '16384 right, 49152 untouched'
  check OMP_THREAD_LIMIT=1 '65536 right, 0 untouched' capped
done
done_with_it
