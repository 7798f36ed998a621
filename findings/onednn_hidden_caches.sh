#!/usr/bin/env bash
# oneDNN 3.7.2 (Debian 13) computes wrong convolutions on AMD's processors where a virtual machine does not tell the
# sizes of their caches. It reads them from CPUID leaf 0x8000001D. Where that is empty, its fields
# make each cache 1 byte. Kernels for AVX2 and later choose their blocks by these sizes, so numbers are wrong
# without an error, and making some strided convolutions ends the process (SIGFPE).
# On other vendors' processors it takes usual sizes instead. The sources of 3.2 to 3.7 have these lines; 2.6 reads no such
# sizes, and 3.8 takes usual ones.
# Seen, f32, pictures [2, 9, 8, 24], 40 filters of 1 x 1: a largest difference of 8.3 from loops with the kernel
# brgconv_1x1:avx512_core, where values are up to 12.5; 0.000002 with ONEDNN_MAX_CPU_ISA=AVX.
# Frugal: ops/onednn_instructions.h keeps oneDNN to AVX on such a machine and says so; docs/guide/troubleshooting.md
# has more; tests/ops compares convolutions with loops in f64 on every machine.
. "$(dirname "$0")/packages.sh"
grep -q AuthenticAMD /proc/cpuinfo || not_tried "this is no processor of AMD"
! lscpu | grep -q '^L1d' || not_tried "this machine tells the sizes of its caches"
packages trixie 'libdnnl-dev=3.7.2*' g++
cat >"$work/trixie/tmp/caches.cpp" <<'END_OF_PROGRAM'
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <dnnl.hpp>
#include <vector>
using namespace dnnl;
using Tag = memory::format_tag;

int main() {
  const int n = 2, h = 9, w = 8, in = 24, out = 40;
  std::vector<float> x(n * h * w * in), k(out * in), y(n * h * w * out);
  for (size_t i = 0; i < x.size(); ++i) x[i] = float(int(i * 7919 % 201) - 100) / 50;
  for (size_t i = 0; i < k.size(); ++i) k[i] = float(int(i * 104729 % 201) - 100) / 50;
  const engine cpu(engine::kind::cpu, 0);
  stream order(cpu);
  const auto f32 = memory::data_type::f32;
  const memory::desc xs({n, in, h, w}, f32, Tag::nhwc), ys({n, out, h, w}, f32, Tag::nhwc),
      ks({out, in, 1, 1}, f32, Tag::ohwi), any({out, in, 1, 1}, f32, Tag::any);
  const convolution_forward::primitive_desc made(cpu, prop_kind::forward_training, algorithm::convolution_direct, xs,
                                                 any, ys, {1, 1}, {0, 0}, {0, 0});
  memory from(ks, cpu, k.data()), weight(made.weights_desc(), cpu), input(xs, cpu, x.data()), output(ys, cpu, y.data());
  reorder(from, weight).execute(order, from, weight);
  convolution_forward(made).execute(order, {{DNNL_ARG_SRC, input}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DST, output}});
  order.wait();
  double difference = 0, largest = 0;
  for (int p = 0; p < n * h * w; ++p)
    for (int o = 0; o < out; ++o) {
      double sum = 0;
      for (int c = 0; c < in; ++c) sum += double(x[p * in + c]) * k[o * in + c];
      difference = std::max(difference, std::abs(sum - y[p * out + o]));
      largest = std::max(largest, std::abs(sum));
    }
  std::printf("%s: largest difference %.6f of values up to %.1f\n", made.impl_info_str(), difference, largest);
}
END_OF_PROGRAM
inside trixie g++ -std=c++17 /tmp/caches.cpp -o /tmp/caches -ldnnl || not_tried "the program does not compile"
for isa in DEFAULT AVX; do
  inside trixie ONEDNN_MAX_CPU_ISA=$isa /tmp/caches | sed "s/^/$isa, /" | tee "$work/$isa"
done
wrong() { awk '{ for (i = 1; i < NF; i++) if ($i == "difference" && $(i + 1) > 0.01) found = 1 } END { exit !found }' "$1"; }
expect "kernels for AVX2 and later give other numbers" wrong "$work/DEFAULT"
expect "those for AVX are right" grep -q 'difference 0.0000' "$work/AVX"
done_with_it
