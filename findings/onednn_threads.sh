#!/usr/bin/env bash
# oneDNN 2.6.3: the bits of an f32 matrix product depend on the number of threads where its kernels are those for AVX2.
# Those for AVX-512 and those for SSE4.1 give equal bits for every number. But those for AVX-512 depend on it, too, where
# the left matrix is transposed and a sum has 2048 terms or more, as in the gradient of a weight over as many rows.
# Seen, 2 to 8 threads against 1: with AVX2 other bits for 7 of 8 shapes, from 2 or 3 threads on and not for each
# number (64x64x64: 2, 3, 5, 6, 8 threads differ; 4 and 7 do not). Three runs with one number had equal bits.
# With such sums 64x4096x16 differs for 2 and 4 to 8 threads, 512x4096x64 for 2, 4, 6 and 8.
# Frugal: ARCHITECTURE.md ("Results"), docs/guide/troubleshooting.md; tests/apps/run.h asks for equal bits elsewhere. Long
# sums are added up in parts of 2032 terms (ops/dense/matmul.cpp).
. "$(dirname "$0")/packages.sh"
grep -q avx2 /proc/cpuinfo || not_tried "a processor without AVX2"
packages bookworm 'libdnnl-dev=2.6.3*' g++
cat >"$work/bookworm/tmp/products.cpp" <<'END'
#include <omp.h>

#include <cstdio>
#include <cstring>
#include <dnnl.hpp>
#include <random>
#include <vector>

using namespace dnnl;
using Dims = memory::dims;

int main(int argc, char**) {
  const bool transposed = argc > 1;
  const engine cpu(engine::kind::cpu, 0);
  stream on(cpu);
  int differ = 0;
  const std::vector<Dims> others = {{64, 32, 256}, {32, 64, 3136},  {32, 10, 64},   {64, 36, 32},
                                    {64, 64, 64},  {128, 128, 128}, {16, 16, 1024}, {256, 256, 256}};
  const std::vector<Dims> long_sums = {{64, 16, 4096}, {512, 64, 4096}};
  for (const Dims& s : transposed ? long_sums : others) {
    const auto f32 = memory::data_type::f32;
    const auto plain = memory::format_tag::ab;
    const memory::desc a(Dims{s[0], s[2]}, f32, transposed ? memory::format_tag::ba : plain), b(Dims{s[2], s[1]}, f32, plain);
    const memory::desc c(Dims{s[0], s[1]}, f32, plain);
    std::mt19937 random(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> av(s[0] * s[2]), bv(s[2] * s[1]), one;
    for (float& x : av) x = uniform(random);
    for (float& x : bv) x = uniform(random);
    bool equal = true;
    for (int threads = 1; threads <= 8; ++threads) {
      omp_set_num_threads(threads);
      const matmul::primitive_desc product(matmul::desc(a, b, c), cpu);
      if (threads == 1) std::printf("%ldx%ldx%ld, %s, other bits with", s[0], s[2], s[1], product.impl_info_str());
      std::vector<float> first;
      for (int time = 0; time < 3; ++time) {
        std::vector<float> cv(s[0] * s[1]);
        matmul(product).execute(on, {{DNNL_ARG_SRC, memory(a, cpu, av.data())},
                                     {DNNL_ARG_WEIGHTS, memory(b, cpu, bv.data())},
                                     {DNNL_ARG_DST, memory(c, cpu, cv.data())}});
        on.wait();
        if (first.empty()) first = cv;
        if (std::memcmp(first.data(), cv.data(), cv.size() * sizeof(float)) != 0) return 99;  // not repeatable
      }
      if (one.empty()) one = first;
      if (std::memcmp(one.data(), first.data(), one.size() * sizeof(float)) == 0) continue;
      equal = false;
      std::printf(" %d", threads);
    }
    std::puts(equal ? " none" : " threads");
    differ += !equal;
  }
  return differ;
}
END
inside bookworm g++ -O1 -fopenmp /tmp/products.cpp -o /tmp/products -ldnnl || not_tried "the program does not compile"
run() {  # ISA, perhaps transposed: sets `differ`, the number of shapes
  echo "$*:"
  differ=0
  inside bookworm ONEDNN_MAX_CPU_ISA="$1" OMP_THREAD_LIMIT=64 /tmp/products "${@:2}" || differ=$?
}
run AVX2
expect "with kernels for AVX2, products depend on the number of threads" [ $differ -ge 1 -a $differ -le 8 ]
run SSE41
expect "with those for SSE4.1, none does" [ $differ -eq 0 ]
if grep -q avx512bw /proc/cpuinfo; then
  run AVX512_CORE
  expect "with those for AVX-512, none does" [ $differ -eq 0 ]
  run AVX512_CORE transposed
  expect "but both with long sums and a transposed left matrix do" [ $differ -eq 2 ]
fi
done_with_it
