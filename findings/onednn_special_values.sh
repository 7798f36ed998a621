#!/usr/bin/env bash
# oneDNN 2.6.3 and 3.7.2: activations of f32 treat what is not a number each in its own way: relu and clip make 0 of it
# and exp infinity, while relu with a slope, tanh, logistic, elu, gelu, swish and the square keep it. A training whose
# values have become NaN looks finite behind such a relu.
# Seen, with the kernels for SSE4.1 and for AVX2: relu(NaN) = 0, clip(NaN, 0, 6) = 0, exp(NaN) = inf. In 2.6.3 with AVX2
# log(1) is -1.4e-6 and not 0.
# Frugal: oneDNN gets no activation and no post-op but a sum (ops/onednn.cpp); tests/ops/dense/bitmask_test.cpp,
# "bitmask: NaN stays visible, infinities do not become NaN, zero is not kept"; tests/ops/dense/elementwise_test.cpp,
# "unary: special values are those of the standard library".
. "$(dirname "$0")/packages.sh"
packages bookworm 'libdnnl-dev=2.6.3*' g++
packages trixie 'libdnnl-dev=3.7.2*' g++
for suite in bookworm trixie; do
  cat >"$work/$suite/tmp/activations.cpp" <<'END_OF_PROGRAM'
#include <cmath>
#include <cstdio>
#include <vector>
#if __has_include(<oneapi/dnnl/dnnl.hpp>)
#include <oneapi/dnnl/dnnl.hpp>
#else
#include <dnnl.hpp>
#endif

int main() {
  using dnnl::algorithm;
  const struct {
    const char* name;
    algorithm kind;
    float alpha, beta;
  } all[] = {{"relu", algorithm::eltwise_relu, 0, 0},         {"leaky", algorithm::eltwise_relu, 0.1f, 0},
             {"clip", algorithm::eltwise_clip, 0, 6},         {"exp", algorithm::eltwise_exp, 0, 0},
             {"log", algorithm::eltwise_log, 0, 0},           {"tanh", algorithm::eltwise_tanh, 0, 0},
             {"logistic", algorithm::eltwise_logistic, 0, 0}, {"elu", algorithm::eltwise_elu, 1, 0},
             {"square", algorithm::eltwise_square, 0, 0},     {"gelu_erf", algorithm::eltwise_gelu_erf, 0, 0},
             {"gelu_tanh", algorithm::eltwise_gelu_tanh, 0, 0}, {"swish", algorithm::eltwise_swish, 1, 0}};
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const dnnl::memory::desc shape({1, 64}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::ab);
  for (const auto& each : all) {
    std::vector<float> x(64, NAN), y(64, 7);
    x[1] = 1;
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::eltwise_forward::primitive_desc how(engine, dnnl::prop_kind::forward_inference, each.kind, shape,
                                                    shape, each.alpha, each.beta);
#else
    const dnnl::eltwise_forward::primitive_desc how(
        {dnnl::prop_kind::forward_inference, each.kind, shape, each.alpha, each.beta}, engine);
#endif
    dnnl::eltwise_forward(how).execute(stream, {{DNNL_ARG_SRC, {shape, engine, x.data()}},
                                                {DNNL_ARG_DST, {shape, engine, y.data()}}});
    stream.wait();
    const auto print = [](float v) { std::isnan(v) ? std::printf(" nan") : std::printf(" %.3g", v + 0.0f); };
    std::printf("%s:", each.name);
    for (int i = 0; i < 2; ++i) print(y[i]);
    std::printf("\n");
  }
}
END_OF_PROGRAM
  inside "$suite" g++ -O1 /tmp/activations.cpp -o /tmp/activations -ldnnl || not_tried "the program does not compile"
  for isa in SSE41 AVX2; do
    inside "$suite" ONEDNN_MAX_CPU_ISA="$isa" DNNL_MAX_CPU_ISA="$isa" /tmp/activations |
      sed "s/^/$suite, $isa: /" | tee "$work/out"
    for line in 'relu: 0 1' 'clip: 0 1' 'exp: inf 2.72' 'leaky: nan 1' 'tanh: nan 0.762' 'logistic: nan 0.731' \
      'elu: nan 1' 'square: nan 1' 'gelu_erf: nan 0.841' 'gelu_tanh: nan 0.841' 'swish: nan 0.731'; do
      expect "$suite, $isa: $line" grep -qxF "$suite, $isa: $line" "$work/out"
    done
    one=0
    [ "$suite $isa" != "bookworm AVX2" ] || one=-1.43e-06
    expect "$suite, $isa: log(1) is $one" grep -qxF "$suite, $isa: log: nan $one" "$work/out"
  done
done
done_with_it
