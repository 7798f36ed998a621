#!/usr/bin/env bash
# ONNX Runtime 1.21 (and 1.30 of the npm registry): Sigmoid of f32 on the CPU has ever fewer right digits below -8. From
# -18 on it is 0, although f32 holds 1.5e-8 and far less. So the logarithm of a small probability is minus infinity.
# Seen, with its kernel for FMA: off by 2e-4 of the value at -10 and by 17 percent at -15. At -16 it is 6e-8 and at -17
# 9e-8 (right: 1.1e-7 and 4.1e-8), so scores of rare classes change places. It is 0 at -18, -20 and -50.
# 1 / (1 + exp(-x)) of the nodes Exp, Add and Div, and Softmax of x and 0, are right within 1e-6.
# Frugal: files that we export end with logits, and docs/guide/export.md says how to make probabilities of them;
# tests/ops/dense/elementwise_test.cpp, "sigmoid: small probabilities keep their digits".
. "$(dirname "$0")/packages.sh"
packages trixie 'python3-onnxruntime=1.21.0*' 'python3-onnx=1.17.0*'
python_in trixie -c '
import numpy
import onnx
import onnxruntime
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

forms = {
    "Sigmoid": [make_node("Sigmoid", ["x"], ["y"])],
    "Exp": [make_node("Neg", ["x"], ["n"]), make_node("Exp", ["n"], ["e"]), make_node("Add", ["e", "one"], ["s"]),
            make_node("Div", ["one", "s"], ["y"])],
    "Softmax": [make_node("Mul", ["x", "zero"], ["z"]), make_node("Concat", ["x", "z"], ["two"], axis=1),
                make_node("Softmax", ["two"], ["both"], axis=1), make_node("Slice", ["both", "from", "to"], ["y"])],
}
constants = {"one": numpy.float32(1), "zero": numpy.float32(0), "from": numpy.array([0, 0]), "to": numpy.array([99, 1])}

def run(form, x):
    used = {name for node in forms[form] for name in node.input}
    graph = make_graph(forms[form], "g", [make_tensor_value_info("x", 1, x.shape)],
                       [make_tensor_value_info("y", 1, x.shape)],
                       [onnx.numpy_helper.from_array(v, k) for k, v in constants.items() if k in used])
    model = make_model(graph, opset_imports=[make_opsetid("", 13)], ir_version=8)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]

x = numpy.array([[-5], [-10], [-15], [-16], [-17], [-18], [-20], [-50]], numpy.float32)
right = 1 / (1 + numpy.exp(-x.astype(numpy.float64)))
for form in forms:
    found = run(form, x)
    for at, y, exact in zip(x[:, 0], found[:, 0], right[:, 0]):
        print(f"{form}({at:g}): {y:.3g} for {exact:.3g}, off by {abs(y / exact - 1):.2g}")
    print(form, "is right" if abs(found / right - 1).max() < 1e-6 else "is wrong")
    print(form, "rises" if (numpy.diff(found[:, 0]) < 0).all() else "does not rise")
' 2>/dev/null | tee "$work/out"
expect "Sigmoid is wrong" grep -qx 'Sigmoid is wrong' "$work/out"
for at in -18 -20 -50; do expect "Sigmoid of $at is 0" grep -q "^Sigmoid($at): 0 for" "$work/out"; done
expect "the other two are right and rise" [ "$(grep -cxE '(Exp|Softmax) (is right|rises)' "$work/out")" = 4 ]
done_with_it
