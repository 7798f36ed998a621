#!/usr/bin/env bash
# ONNX Runtime 1.21, on x86-64: four operators make numbers of NaN, where the others keep it. MaxPool, GlobalMaxPool and
# ReduceMax lose it by its place, and Erf of NaN is 1. A network whose values have become NaN then answers as if nothing
# had happened: behind a max pooling no later layer can tell.
# Seen: MaxPool of a window with 1, 2, 3 and NaN is 3 where NaN is first, second or third, and NaN where it is last.
# GlobalMaxPool of 1, NaN, 2, 3 is 3. ReduceMax of 1, NaN, 2 is 2 and of NaN, 1, 2 NaN; so ArgMax says 2 and 0. Relu,
# Clip, Softmax, Sigmoid, Tanh, Gelu and AveragePool keep NaN.
# Frugal: our own kernels keep NaN, and weights that are not finite are refused where they are read
# (docs/guide/export.md); tests/apps/export_command_test.cpp, "export refuses weights that are not numbers";
# tests/ops/image/pool2d_test.cpp, "max_pool2d: padding never wins, the first of equals does, NaN is never lost".
. "$(dirname "$0")/packages.sh"
packages trixie 'python3-onnxruntime=1.21.0*' 'python3-onnx=1.17.0*'
cat >"$work/trixie/tmp/nodes.py" <<'END_OF_PROGRAM'
import numpy
import onnxruntime
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

nan = numpy.float32("nan")
cases = {}
for at in range(4):
    cases["MaxPool, NaN at %d" % at] = "MaxPool", numpy.roll([nan, 1, 2, 3], at).reshape(1, 1, 2, 2)
cases["GlobalMaxPool"] = "GlobalMaxPool", numpy.array([1, nan, 2, 3]).reshape(1, 1, 2, 2)
cases["AveragePool"] = "AveragePool", numpy.array([1, nan, 2, 3]).reshape(1, 1, 2, 2)
for op in "ReduceMax", "ArgMax":
    cases[op + ", NaN first"] = op, numpy.array([nan, 1, 2])
    cases[op + ", NaN second"] = op, numpy.array([1, nan, 2])
for op in "Erf", "Relu", "Clip", "Softmax", "Sigmoid", "Tanh", "Gelu":
    cases[op] = op, numpy.array([nan, 1, 2])

def model_of(op, x):
    options = {"kernel_shape": [2, 2]} if op in ("MaxPool", "AveragePool") else {}
    options = {"keepdims": 0} if op in ("ReduceMax", "ArgMax") else options
    y = make_tensor_value_info("y", 7 if op == "ArgMax" else 1, None)
    graph = make_graph([make_node(op, ["x"], ["y"], **options)], "g", [make_tensor_value_info("x", 1, x.shape)], [y])
    return make_model(graph, opset_imports=[make_opsetid("", 20)], ir_version=9)

for name, (op, x) in cases.items():
    x = x.astype(numpy.float32)
    session = onnxruntime.InferenceSession(model_of(op, x).SerializeToString())
    print("%s: %.3g" % (name, session.run(None, {"x": x})[0].reshape(-1)[0]))
END_OF_PROGRAM
python_in trixie /tmp/nodes.py 2>/dev/null | tee "$work/out"
for line in 'MaxPool, NaN at 0: 3' 'MaxPool, NaN at 1: 3' 'MaxPool, NaN at 2: 3' 'MaxPool, NaN at 3: nan' \
  'GlobalMaxPool: 3' 'ReduceMax, NaN first: nan' 'ReduceMax, NaN second: 2' 'ArgMax, NaN first: 0' \
  'ArgMax, NaN second: 2' 'Erf: 1' 'AveragePool: nan' 'Relu: nan' 'Clip: nan' 'Softmax: nan' 'Sigmoid: nan' \
  'Tanh: nan' 'Gelu: nan'; do
  expect "$line" grep -qxF "$line" "$work/out"
done
done_with_it
