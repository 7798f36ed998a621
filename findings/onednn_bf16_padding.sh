#!/usr/bin/env bash
# oneDNN 2.6.3 and 3.7.2 compute a bf16 convolution's gradient of the weight, and leave a part of it to what the
# scratchpad held before: where the stride is above 1 and the output has one column, the taps of the window that meet
# padding only. Their gradient is 0. It is what stood in memory instead, without an error.
# Seen, with AVX-512 BF16 and with AMX, window 3x3, stride 2, 32 to 48 channels, 1x1 and 9x1 pixels: a scratchpad of
# zeros gives finite gradients, one of NaN about 3,000 and 9,216 of 13,824 that are NaN. Not with 2 columns or stride 1.
# Frugal: ops/image/conv2d.cpp computes these gradients in f32; tests/ops/image/conv2d_test.cpp leaves NaN in memory.
. "$(dirname "$0")/packages.sh"
grep -q avx512_bf16 /proc/cpuinfo || not_tried "a processor without AVX-512 BF16"
for suite in bookworm trixie; do
  version=2.6.3
  [ $suite = bookworm ] || version=3.7.2
  packages $suite "libdnnl-dev=$version*" g++
  cat >"$work/$suite/tmp/padding.cpp" <<'END'
#include <cmath>
#include <cstdio>
#include <cstring>
#include <dnnl.hpp>
#include <array>
using namespace dnnl;
using Type = memory::data_type;
using Tag = memory::format_tag;

// How many elements of the gradient of a 3x3 weight, padding 1, are no numbers, where all inputs are 1.
long strange(long stride, long height, long width, unsigned char scratch_byte) {
  const engine cpu(engine::kind::cpu, 0);
  stream queue(cpu);
  const long out_height = (height - 1) / stride + 1, out_width = (width - 1) / stride + 1;
  const memory::dims steps{stride, stride}, taps{0, 0}, edge{1, 1};
  const memory::desc x({2, 32, height, width}, Type::bf16, Tag::nhwc), w({48, 32, 3, 3}, Type::bf16, Tag::any);
  const memory::desc y({2, 48, out_height, out_width}, Type::bf16, Tag::nhwc), dw({48, 32, 3, 3}, Type::f32, Tag::any);
  primitive_attr attr;
  attr.set_scratchpad_mode(scratchpad_mode::user);
#if DNNL_VERSION_MAJOR < 3
  const convolution_forward::primitive_desc forward(
      {prop_kind::forward_training, algorithm::convolution_direct, x, w, y, steps, taps, edge, edge}, cpu);
  const convolution_backward_weights::primitive_desc made(
      {algorithm::convolution_direct, x, dw, y, steps, taps, edge, edge}, attr, cpu, forward);
#else
  const convolution_forward::primitive_desc forward(cpu, prop_kind::forward_training, algorithm::convolution_direct, x,
                                                    w, y, steps, taps, edge, edge);
  const convolution_backward_weights::primitive_desc made(cpu, algorithm::convolution_direct, x, dw, y, steps, taps,
                                                          edge, edge, forward, attr);
#endif
  const auto filled = [&](const memory::desc& desc, unsigned short word) {
    memory m(desc, cpu);
    auto* words = static_cast<unsigned short*>(m.get_data_handle());
    for (size_t i = 0; i < desc.get_size() / 2; ++i) words[i] = word;
    return m;
  };
  memory xs = filled(x, 0x3f80), ys = filled(y, 0x3f80), gradient(made.diff_weights_desc(), cpu);
  memory scratch(made.scratchpad_desc(), cpu);
  std::memset(scratch.get_data_handle(), scratch_byte, made.scratchpad_desc().get_size());
  convolution_backward_weights(made).execute(queue, {{DNNL_ARG_SRC, xs},
                                                     {DNNL_ARG_DIFF_DST, ys},
                                                     {DNNL_ARG_DIFF_WEIGHTS, gradient},
                                                     {DNNL_ARG_SCRATCHPAD, scratch}});
  memory plain({{48, 32, 3, 3}, Type::f32, Tag::oihw}, cpu);
  reorder(gradient, plain).execute(queue, gradient, plain);
  queue.wait();
  const auto* values = static_cast<const float*>(plain.get_data_handle());
  long count = 0;
  for (long i = 0; i < 48 * 32 * 9; ++i) count += !std::isfinite(values[i]);
  return count;
}

int main() {
  const auto* version = dnnl_version();
  using Case = std::array<long, 3>;
  for (const auto& [stride, height, width] : {Case{2, 1, 1}, Case{2, 9, 1}, Case{2, 9, 2}, Case{1, 9, 1}})
    std::printf("%d.%d stride %ld, %ldx%ld: %ld %ld\n", version->major, version->minor, stride, height, width,
                strange(stride, height, width, 0), strange(stride, height, width, 0xff));
}
END
  inside $suite g++ -std=c++17 -O1 /tmp/padding.cpp -o /tmp/padding -ldnnl || not_tried "the program does not compile"
  for isa in DEFAULT AVX512_CORE_BF16; do
    inside $suite ONEDNN_MAX_CPU_ISA=$isa /tmp/padding | sed "s/^/$isa, /" | tee "$work/out"
    expect "$version, $isa: finite where the scratchpad was 0" [ "$(grep -c ': 0 ' "$work/out")" -eq 4 ]
    expect "$version, $isa: one pixel, stride 2: NaN stays" grep -qE 'stride 2, 1x1: 0 [1-9]' "$work/out"
    expect "$version, $isa: one column, stride 2: NaN stays" grep -qE 'stride 2, 9x1: 0 [1-9]' "$work/out"
    expect "$version, $isa: two columns, or stride 1: no NaN" [ "$(grep -c ': 0 0$' "$work/out")" -eq 2 ]
  done
done
done_with_it
