#!/usr/bin/env bash
# oneDNN 2.6.3 takes other kernels for a convolution with a dilation, which first write the window of every pixel, its
# padding included, to memory: with the kernels for AVX2 from a dilation of 2 on.
# Seen: gradient of a weight [256, 512, 3, 3], 2 threads, 32x32 pixels: jit:avx2 and 0 MB of scratchpad at dilation 1,
# x64:gemm:jit and 39.8 MB at 2 and 24. (With AVX-512 the change comes between 12 and 18.) At 24 the window meets mostly
# padding, and takes as much as at 2. Only primitive descriptors are made; nothing runs.
# Frugal: ops/image/conv2d.cpp (lies_in_padding) multiplies matrices by taps there; docs/design/memory.md, "Kernels".
. "$(dirname "$0")/packages.sh"
grep -q avx2 /proc/cpuinfo || not_tried "a processor without AVX2"
packages bookworm 'libdnnl-dev=2.6.3*' g++
cat >"$work/bookworm/tmp/dilation.cpp" <<'END'
#include <cstdio>
#include <dnnl.hpp>
using namespace dnnl;

int main() {
  const engine cpu(engine::kind::cpu, 0);
  const auto f32 = memory::data_type::f32;
  using Tag = memory::format_tag;
  primitive_attr attr;
  attr.set_scratchpad_mode(scratchpad_mode::user);
  for (const memory::dim dilation : {1, 2, 24}) {
    const memory::desc x({8, 512, 32, 32}, f32, Tag::nhwc), y({8, 256, 32, 32}, f32, Tag::nhwc);
    const memory::desc w({256, 512, 3, 3}, f32, Tag::any);
    const memory::dims stride{1, 1}, between{dilation - 1, dilation - 1}, padding{dilation, dilation};
    const convolution_forward::primitive_desc forward(
        {prop_kind::forward, algorithm::convolution_direct, x, w, y, stride, between, padding, padding}, attr, cpu);
    const convolution_backward_weights::primitive_desc weight(
        {algorithm::convolution_direct, x, w, y, stride, between, padding, padding}, attr, cpu, forward);
    std::printf("%ld %s %zu\n", dilation, weight.impl_info_str(), weight.scratchpad_desc().get_size());
  }
}
END
inside bookworm g++ -O1 /tmp/dilation.cpp -o /tmp/dilation -ldnnl || not_tried "the program does not compile"
inside bookworm ONEDNN_MAX_CPU_ISA=AVX2 OMP_NUM_THREADS=2 /tmp/dilation >"$work/out"
awk '{ printf "dilation %d: %s, %.1f MB of scratchpad\n", $1, $2, $3 / 1e6 }' "$work/out"
bytes() { awk -v dilation="$1" '$1 == dilation { print $3 }' "$work/out"; }
expect "without dilation, less than 1 MB" [ "$(bytes 1)" -lt 1000000 ]
expect "at 2, more than 30 MB" [ "$(bytes 2)" -gt 30000000 ]
expect "at 24, as much" [ "$(bytes 24)" -eq "$(bytes 2)" ]
done_with_it
