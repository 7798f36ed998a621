#!/usr/bin/env bash
# Highway 1.0.3, which Debian 12 has: DemoteTo() of f32 to bf16 and f16 cuts digits off, where 1.2.0 rounds to nearest.
# Its f16 has no infinity: what is too large becomes another finite number.
# Seen. bf16: 1.0078123 (0x3f80ffff) becomes 1 (1.2.0: 1.0078125), and the NaN 0x7f800001 becomes infinity. So what is
# kept in bf16 drifts towards 0. f16: 1.0014648 becomes 1.0009766 (1.2.0: 1.0019531), infinity becomes 32768, 1e6
# becomes 62496 and 65520 becomes 65504 (1.2.0: infinity for all three). It is so in programs for plain x86-64.
# Frugal: bf16 is rounded by integers of its own (ops/simd/storage-inl.h); tests/core/tensor_test.cpp, "bf16 and f16
# round to nearest even", and tests/ops/f32_blocks_test.cpp, "a kernel in f32 over bf16 rounds once, for any number of
# rows and threads".
. "$(dirname "$0")/packages.sh"
packages bookworm 'libhwy-dev=1.0.3*' g++
packages trixie 'libhwy-dev=1.2.0*' g++
cat >"$work/bookworm/tmp/halves.cpp" <<'END_OF_PROGRAM'
#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class To>
unsigned bits_of(float x) {
  const hn::ScalableTag<float> from;
  const hn::Rebind<To, decltype(from)> to;
  To out[64];
  hn::StoreU(hn::DemoteTo(to, hn::Set(from, x)), to, out);
  uint16_t bits;
  std::memcpy(&bits, out, 2);
  return bits;
}

void show() {
  for (const uint32_t bits : {0x3f80ffffu, 0x3f808001u, 0xbf80ffffu, 0x3f800000u, 0x7f800001u, 0x7f800000u}) {
    float x;
    std::memcpy(&x, &bits, 4);
    std::printf("bf16 of %08x: %04x\n", bits, bits_of<hwy::bfloat16_t>(x));
  }
  for (const float x : {1.00146484375f, 1.f, 65504.f, 65520.f, 1e6f, INFINITY})
    std::printf("f16 of %.7g: %04x\n", x, bits_of<hwy::float16_t>(x));
}
}  // namespace HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

int main() { HWY_NAMESPACE::show(); }
END_OF_PROGRAM
cp "$work/bookworm/tmp/halves.cpp" "$work/trixie/tmp"
seen=('bf16 of 3f80ffff: 3f80 3f81' 'bf16 of 3f808001: 3f80 3f81' 'bf16 of bf80ffff: bf80 bf81'
  'bf16 of 3f800000: 3f80 3f80' 'bf16 of 7f800001: 7f80 7fc0' 'bf16 of 7f800000: 7f80 7f80'
  'f16 of 1.001465: 3c01 3c02' 'f16 of 1: 3c00 3c00'
  'f16 of 65504: 7bff 7bff' 'f16 of 65520: 7bff 7c00' 'f16 of 1000000: 7ba1 7c00' 'f16 of inf: 7800 7c00')
for suite in bookworm trixie; do
  inside "$suite" g++ -std=c++17 -O2 /tmp/halves.cpp -o /tmp/halves -lhwy || not_tried "the program does not compile"
  inside "$suite" /tmp/halves | sed "s/^/$suite: /" | tee "$work/out"
  for line in "${seen[@]}"; do
    read -r before after <<<"${line#*: }"
    [ "$suite" = bookworm ] || before=$after
    expect "$suite, ${line%%:*}" grep -qx "$suite: ${line%%:*}: $before" "$work/out"
  done
done
done_with_it
