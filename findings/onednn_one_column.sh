#!/usr/bin/env bash
# oneDNN 2.6.3 chooses the kernel of a matrix product by strides that have no meaning. A result with one column may be
# described as [64, 1] with the strides 1, 1 or 1, 64: its elements lie at the same places. For the second it takes its
# reference loops. Such strides come from the transpose of a row [1, 64]. (3.7.2 has fast kernels for both.)
# Seen, f32, 64 x 512 times 512 x 1: "gemm:jit" or "brg:avx512_core" for 1, 1, and "ref:any" for 1, 64.
# Frugal: ops/dense/matmul.cpp (desc_of) describes axes of extent 1 as a contiguous tensor has them.
. "$(dirname "$0")/packages.sh"
packages bookworm 'libdnnl-dev=2.6.3*' g++
cat >"$work/bookworm/tmp/column.cpp" <<'END_OF_PROGRAM'
#include <cstdio>
#include <dnnl.hpp>
using namespace dnnl;
using Dims = memory::dims;

int main() {
  const engine cpu(engine::kind::cpu, 0);
  const auto f32 = memory::data_type::f32;
  const memory::desc a(Dims{64, 512}, f32, Dims{512, 1}), b(Dims{512, 1}, f32, Dims{1, 1});
  for (const memory::dim stride : {1, 64}) {  // of an axis of extent 1
    const memory::desc c(Dims{64, 1}, f32, Dims{1, stride});
    const matmul::primitive_desc made({a, b, c}, cpu);
    std::printf("strides 1, %ld: %s\n", long(stride), made.impl_info_str());
  }
}
END_OF_PROGRAM
inside bookworm g++ -std=c++17 /tmp/column.cpp -o /tmp/column -ldnnl || not_tried "the program does not compile"
for isa in DEFAULT SSE41; do
  inside bookworm ONEDNN_MAX_CPU_ISA=$isa /tmp/column | sed "s/^/$isa, /" | tee "$work/out"
  expect "$isa: a column has a fast kernel" grep -qE 'strides 1, 1: (gemm|brg)' "$work/out"
  expect "$isa: not so with another stride of its one element" grep -q 'strides 1, 64: ref' "$work/out"
done
done_with_it
