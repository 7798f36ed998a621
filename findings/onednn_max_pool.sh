#!/usr/bin/env bash
# oneDNN 2.6.3 and 3.7.2: max pooling in f32 loses what is not a number, and what is minus infinity: it begins with the
# least finite float, and takes a value that is greater.
# Seen: of a window with NaN, 1, 2 and 3 the maximum is 3, where NaN is first and where it is last. Of four NaN, or four
# minus infinities, it is -3.40282e+38, which is finite. (PyTorch 1.13 gives NaN, NaN and -inf.) It is so with 3 and
# with 16 channels, with the processor's best kernels and with those for SSE4.1.
# A training whose values have become NaN looks finite behind such a layer.
# Frugal: ops/image/pool2d.cpp has kernels of its own; tests/ops/image/pool2d_test.cpp, "max_pool2d: padding never wins,
# the first of equals does, NaN is never lost".
. "$(dirname "$0")/packages.sh"
packages bookworm 'libdnnl-dev=2.6.3*' g++
packages trixie 'libdnnl-dev=3.7.2*' g++
cat >"$work/bookworm/tmp/pool.cpp" <<'END_OF_PROGRAM'
#include <cmath>
#include <cstdio>
#include <limits>
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
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (const int channels : {3, 16})
    for (const std::vector<float>& window : {std::vector<float>{nan, 1, 2, 3}, {1, 2, 3, nan}, {nan, nan, nan, nan},
                                             {-inf, -inf, -inf, -inf}, {-4, -3, -2, -1}}) {
      std::vector<float> x, y(channels);
      for (const float value : window) x.insert(x.end(), channels, value);
      const auto f32 = memory::data_type::f32;
      const memory::desc in({1, channels, 2, 2}, f32, memory::format_tag::nhwc);
      const memory::desc out({1, channels, 1, 1}, f32, memory::format_tag::nhwc);
      const auto kind = prop_kind::forward_inference;
      const auto max = algorithm::pooling_max;
      const memory::dims two{2, 2}, none{0, 0};
#if DNNL_VERSION_MAJOR >= 3
      const pooling_forward::primitive_desc made(cpu, kind, max, in, out, two, two, none, none, none);
#else
      const pooling_forward::primitive_desc made({kind, max, in, out, two, two, none, none}, cpu);
#endif
      pooling_forward(made).execute(
          on, {{DNNL_ARG_SRC, memory(in, cpu, x.data())}, {DNNL_ARG_DST, memory(out, cpu, y.data())}});
      on.wait();
      std::printf("%d channels: %g of %g %g %g %g\n", channels, y[0], window[0], window[1], window[2], window[3]);
    }
}
END_OF_PROGRAM
cp "$work/bookworm/tmp/pool.cpp" "$work/trixie/tmp"
for suite in bookworm trixie; do
  inside "$suite" g++ -std=c++17 /tmp/pool.cpp -o /tmp/pool -ldnnl || not_tried "the program does not compile"
  for isa in DEFAULT SSE41; do
    inside "$suite" ONEDNN_MAX_CPU_ISA=$isa /tmp/pool | sed "s/^/$suite, $isa, /" | tee "$work/out"
    expect "$suite, $isa: NaN is lost beside numbers" [ "$(grep -cE ': 3 of .*nan' "$work/out")" -eq 4 ]
    expect "$suite, $isa: of NaN or minus infinity alone comes a finite number" \
      [ "$(grep -cE ': -3.40282e\+38 of (nan nan nan nan|-inf -inf -inf -inf)' "$work/out")" -eq 4 ]
    expect "$suite, $isa: other maxima are right" [ "$(grep -c ': -1 of -4' "$work/out")" -eq 2 ]
  done
done
done_with_it
