#!/usr/bin/env bash
# oneDNN 2.6.3 and 3.7.2: the product of matrices [M, 0] and [0, N] is zeros, or the bias of each column. matmul, and
# dnnl_sgemm() with beta = 0, leave their result as it was, without an error. BLAS writes zeros.
# Seen, a result that holds 7 before: 7 after matmul; with a bias of 3, 7 in 3.7 and 10 in 2.6, which adds the bias to
# what was there; 7 after dnnl_sgemm() with beta = 0 and with beta = 2 (BLAS: 0 and 14). Tables without features and
# empty slices of an axis make such products. Memory that was just allocated holds anything.
# Frugal: ops/dense/matmul.cpp (matmul_kernel) writes them itself; tests/ops/dense/matmul_test.cpp, "matmul: empty
# extents".
. "$(dirname "$0")/packages.sh"
packages bookworm 'libdnnl-dev=2.6.3*' g++
packages trixie 'libdnnl-dev=3.7.2*' g++
cat >"$work/bookworm/tmp/empty.cpp" <<'END_OF_PROGRAM'
#include <cstdio>
#include <vector>
#if __has_include(<oneapi/dnnl/dnnl.hpp>)
#include <oneapi/dnnl/dnnl.hpp>
#else
#include <dnnl.hpp>
#endif
using namespace dnnl;

int main() {
  const engine cpu(engine::kind::cpu, 0);
  stream on(cpu);
  const auto f32 = memory::data_type::f32;
  const auto ab = memory::format_tag::ab;
  std::vector<float> nothing(1), added(4, 3);
  for (const int inner : {0, 2})
    for (const bool biased : {false, true}) {
      std::vector<float> ones(8, 1), result(8, 7);
      const memory::desc a({2, inner}, f32, ab), b({inner, 4}, f32, ab), c({2, 4}, f32, ab), bias({1, 4}, f32, ab);
#if DNNL_VERSION_MAJOR >= 3
      const auto made = biased ? matmul::primitive_desc(cpu, a, b, bias, c) : matmul::primitive_desc(cpu, a, b, c);
#else
      const auto made = biased ? matmul::primitive_desc({a, b, bias, c}, cpu) : matmul::primitive_desc({a, b, c}, cpu);
#endif
      float* from = inner == 0 ? nothing.data() : ones.data();
      std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, memory(a, cpu, from)},
                                                {DNNL_ARG_WEIGHTS, memory(b, cpu, from)},
                                                {DNNL_ARG_DST, memory(c, cpu, result.data())}};
      if (biased) arguments.insert({DNNL_ARG_BIAS, memory(bias, cpu, added.data())});
      matmul(made).execute(on, arguments);
      on.wait();
      std::printf("matmul of %d%s: %g %g\n", inner, biased ? " and bias 3" : "", result[0], result[7]);
    }
  for (const int inner : {0, 2})
    for (const float beta : {0.f, 2.f}) {
      std::vector<float> ones(8, 1), result(8, 7);
      dnnl_sgemm('N', 'N', 2, 4, inner, 1, ones.data(), 2, ones.data(), 4, beta, result.data(), 4);
      std::printf("dnnl_sgemm of %d, beta %g: %g %g\n", inner, beta, result[0], result[7]);
    }
}
END_OF_PROGRAM
cp "$work/bookworm/tmp/empty.cpp" "$work/trixie/tmp"
for suite in bookworm trixie; do
  biased=10
  [ "$suite" = bookworm ] || biased=7
  inside "$suite" g++ -std=c++17 /tmp/empty.cpp -o /tmp/empty -ldnnl || not_tried "the program does not compile"
  for isa in AVX2 SSE41; do
    inside "$suite" ONEDNN_MAX_CPU_ISA=$isa /tmp/empty | sed "s/^/$suite, $isa, /" | tee "$work/out"
    for line in 'matmul of 0: 7 7' "matmul of 0 and bias 3: $biased $biased" 'dnnl_sgemm of 0, beta 0: 7 7' \
      'dnnl_sgemm of 0, beta 2: 7 7'; do
      expect "$suite, $isa: not written, $line" grep -qx "$suite, $isa, $line" "$work/out"
    done
    for line in 'matmul of 2: 2 2' 'matmul of 2 and bias 3: 5 5' 'dnnl_sgemm of 2, beta 0: 2 2' \
      'dnnl_sgemm of 2, beta 2: 16 16'; do
      expect "$suite, $isa: right, $line" grep -qx "$suite, $isa, $line" "$work/out"
    done
  done
done
done_with_it
