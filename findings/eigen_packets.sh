#!/usr/bin/env bash
# Eigen 3.4.0: functions of an array of float give other results for whole packets of 4 or 8 elements than for the last
# few, by default: sqrt(infinity) is NaN and exp(minus infinity) is not 0. ONNX Runtime 1.21, as Debian builds it, takes
# its Sqrt and Log from there. (That of the npm registry, 1.30, is right.)
# Seen, 9 equal elements, the first and the last: sqrt(inf) NaN and inf, sqrt(1e-40) 0 and 1e-20, exp(-inf) and
# logistic(-inf) 2.9e-39 and 0, log(1e-40) -87.3 and -92.1. ONNX Runtime: Sqrt(inf) NaN and inf, Sqrt(1e-40) 0 and
# 1e-20, Log(1e-40) -87.3 and -92.1; Exp is right. maxCoeff() is NaN where NaN is first and 1 where it is last. Programs
# for plain x86-64 add bf16 in bf16: the sum of 1,000 ones is 256, and 1,000 with -march=haswell.
# So a masked score keeps a probability, and an overflow is infinite or NaN by its place in the array.
# Frugal: Eigen multiplies matrices of f64 alone (ops/dense/matmul_reference.cpp); tests/ops/dense/elementwise_test.cpp,
# "unary: special values are those of the standard library". docs/guide/export.md says it of ONNX Runtime.
. "$(dirname "$0")/packages.sh"
packages trixie 'libeigen3-dev=3.4.0*' g++ 'python3-onnxruntime=1.21.0*' 'python3-onnx=1.17.0*'
cat >"$work/trixie/tmp/packets.cpp" <<'END_OF_PROGRAM'
#include <Eigen/Dense>
#include <cmath>
#include <cstdio>

template <class F>
void show(const char* name, F f, float x) {
  const Eigen::ArrayXf all = Eigen::ArrayXf::Constant(9, x), y = f(all);
  std::printf("Eigen %s(%.3g): %.3g and %.3g\n", name, x, y(0), y(8));
}

int main() {
  using A = Eigen::ArrayXf;
  const auto root = [](const A& x) -> A { return x.sqrt(); };
  const auto exp = [](const A& x) -> A { return x.exp(); };
  const auto log = [](const A& x) -> A { return x.log(); };
  const auto logistic = [](const A& x) -> A { return x.logistic(); };
  for (const float x : {INFINITY, 1e-40f, 4.f}) show("sqrt", root, x);
  for (const float x : {-INFINITY, 1.f}) show("exp", exp, x);
  for (const float x : {1e-40f, 2.f}) show("log", log, x);
  show("logistic", logistic, -INFINITY);
  for (const int place : {0, 8}) {
    A x = A::Ones(9);
    x(place) = NAN;
    std::printf("Eigen maxCoeff, NaN at %d: %g\n", place, x.maxCoeff());
  }
  std::printf("Eigen sum of bf16: %g\n", static_cast<float>(Eigen::VectorX<Eigen::bfloat16>::Ones(1000).sum()));
}
END_OF_PROGRAM
inside trixie g++ -O2 -I/usr/include/eigen3 /tmp/packets.cpp -o /tmp/packets || not_tried "the program does not compile"
inside trixie g++ -O2 -march=haswell -I/usr/include/eigen3 /tmp/packets.cpp -o /tmp/haswell ||
  not_tried "the program does not compile"
inside trixie /tmp/packets | tr -d '\r' | sed 's/-nan/nan/g' | tee "$work/out"
python_in trixie -c '
import numpy
import onnxruntime
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

for op, values in ("Sqrt", [numpy.inf, 1e-40, 4]), ("Exp", [-numpy.inf, 1]), ("Log", [1e-40, 2]):
    graph = make_graph([make_node(op, ["x"], ["y"])], "g", [make_tensor_value_info("x", 1, [9])],
                       [make_tensor_value_info("y", 1, [9])])
    model = make_model(graph, opset_imports=[make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for value in values:
        y = session.run(None, {"x": numpy.full(9, value, numpy.float32)})[0]
        print(f"ONNX Runtime {op}({value:g}): {y[0]:.3g} and {y[8]:.3g}")
' 2>/dev/null | tee -a "$work/out"
for line in 'Eigen sqrt(inf): nan and inf' 'Eigen sqrt(1e-40): 0 and 1e-20' 'Eigen exp(-inf): 2.94e-39 and 0' \
  'Eigen log(1e-40): -87.3 and -92.1' 'Eigen logistic(-inf): 2.94e-39 and 0' 'Eigen maxCoeff, NaN at 0: nan' \
  'Eigen maxCoeff, NaN at 8: 1' 'Eigen sum of bf16: 256' 'ONNX Runtime Sqrt(inf): nan and inf' \
  'ONNX Runtime Sqrt(1e-40): 0 and 1e-20' 'ONNX Runtime Exp(-inf): 0 and 0' 'ONNX Runtime Log(1e-40): -87.3 and -92.1' \
  'Eigen sqrt(4): 2 and 2' 'Eigen exp(1): 2.72 and 2.72' 'Eigen log(2): 0.693 and 0.693' \
  'ONNX Runtime Sqrt(4): 2 and 2' 'ONNX Runtime Log(2): 0.693 and 0.693'; do
  expect "$line" grep -qxF "$line" "$work/out"
done
if grep -qw avx2 /proc/cpuinfo; then
  inside trixie /tmp/haswell | grep bf16 | tee "$work/haswell"
  expect "bf16 for haswell" grep -qx 'Eigen sum of bf16: 1000' "$work/haswell"
fi
done_with_it
