#!/usr/bin/env bash
# onnx 1.17: its ReferenceEvaluator, which is there to say what an operator means, computes BatchNormalization of the
# operator sets 9 to 13 with statistics that it first moves towards those of the batch, by 1 - momentum. The standard
# takes mean and var as they are in evaluation, as ONNX Runtime 1.21 does. So a sample's output depends on the others,
# and is off by so little that it looks like rounding. LRN adds up squares for as many channels as the batch has
# samples, and LpNormalization with p=1 divides by the sum instead of the sum of absolute values.
# Seen, f32: BatchNormalization with mean 0 and var 1 of two samples, 0 and 2: 0 and 2 by set 15; 0 and 2 by ONNX
# Runtime for both sets; -0.1 and 1.9 by the reference for set 13, which with momentum=1 is right, too. LRN of 1 sample
# of 3 ones: 0.5, 1, 1 (right: 0.5 for all). LpNormalization of 1, -2, 3 with p=1: 0.5, -1, 1.5 (right: 0.1667, -0.3333,
# 0.5).
# Frugal: our files have momentum=1, which changes nothing else (export/lower_image.cpp, norm_of);
# tests/export/onnx_export_test.cpp, "statistics of a norm are those of the network, also for onnx's reference";
# docs/guide/export.md warns of the reference.
. "$(dirname "$0")/packages.sh"
packages trixie 'python3-onnx=1.17.0*' 'python3-onnxruntime=1.21.0*'
for runner in reference runtime; do
  python_in trixie -c '
import sys
import numpy
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info
from onnx.numpy_helper import from_array

def run(op, opset, x, constants={}, **attributes):
    graph = make_graph([make_node(op, ["x", *constants], ["y"], **attributes)], "g",
                       [make_tensor_value_info("x", 1, x.shape)], [make_tensor_value_info("y", 1, x.shape)],
                       [from_array(numpy.array([value], numpy.float32), name) for name, value in constants.items()])
    model = make_model(graph, opset_imports=[make_opsetid("", opset)], ir_version=8)
    if sys.argv[1] == "reference":
        from onnx.reference import ReferenceEvaluator
        y = ReferenceEvaluator(model).run(None, {"x": x})[0]
    else:
        import onnxruntime
        y = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    return " ".join("%.4f" % value for value in y.ravel())

batch = numpy.array([0, 2], numpy.float32).reshape(2, 1, 1, 1)
norm = {"scale": 1, "bias": 0, "mean": 0, "var": 1}
for opset in 9, 13, 15:
    print(f"BatchNormalization of set {opset}:", run("BatchNormalization", opset, batch, norm))
print("BatchNormalization of set 13, momentum=1:", run("BatchNormalization", 13, batch, norm, momentum=1.0))
print("LRN:", run("LRN", 13, numpy.ones((1, 3, 1, 1), numpy.float32), size=1, alpha=1.0, beta=1.0, bias=1.0))
print("LpNormalization:", run("LpNormalization", 13, numpy.array([[1, -2, 3]], numpy.float32), axis=1, p=1))
' $runner 2>/dev/null | sed "s/^/$runner, /" | tee -a "$work/out"
done
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
reference, BatchNormalization of set 9: -0.1000 1.9000
reference, BatchNormalization of set 13: -0.1000 1.9000
reference, BatchNormalization of set 15: 0.0000 2.0000
reference, BatchNormalization of set 13, momentum=1: 0.0000 2.0000
reference, LRN: 0.5000 1.0000 1.0000
reference, LpNormalization: 0.5000 -1.0000 1.5000
runtime, BatchNormalization of set 9: 0.0000 2.0000
runtime, BatchNormalization of set 13: 0.0000 2.0000
runtime, BatchNormalization of set 15: 0.0000 2.0000
runtime, BatchNormalization of set 13, momentum=1: 0.0000 2.0000
runtime, LRN: 0.5000 0.5000 0.5000
runtime, LpNormalization: 0.1667 -0.3333 0.5000
END_OF_LINES
done_with_it
