#!/usr/bin/env bash
# ONNX Runtime 1.21 makes one node of the nodes of a layer norm (ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div). The
# file computes the mean of (x - mean)^2; the node, as that of opset 17, takes mean(x^2) - mean(x)^2 in f32. Where the
# mean is a thousand times the deviation, the digits are gone. (Of the npm registry, 1.21 to 1.23 do so; 1.30 is right.)
# Seen, rows of 64 values of deviation 1: with the mean 1000 outputs are off by 0.17 to 0.23, with 4000 by more than 1
# or they are NaN. Without optimizations (ORT_DISABLE_ALL) the file is right within 0.0003.
# Frugal: export/lower_sequence.cpp (layer_norm_of) takes the mean away before, too, so the node's input has none, and
# results are right within 0.000001; tests/export/onnx_test.py (check_layer_norm).
. "$(dirname "$0")/packages.sh"
packages trixie 'python3-onnxruntime=1.21.0*' 'python3-onnx=1.17.0*'
python_in trixie -c '
import numpy
import onnx
import onnxruntime
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

def layer_norm(x):
    return [make_node("ReduceMean", [x], ["mean"], axes=[-1]), make_node("Sub", [x, "mean"], ["d"]),
            make_node("Pow", ["d", "two"], ["square"]), make_node("ReduceMean", ["square"], ["variance"], axes=[-1]),
            make_node("Add", ["variance", "eps"], ["sum"]), make_node("Sqrt", ["sum"], ["root"]),
            make_node("Div", ["d", "root"], ["n"]), make_node("Mul", ["n", "scale"], ["scaled"]),
            make_node("Add", ["scaled", "bias"], ["y"])]

before = [make_node("ReduceMean", ["x"], ["m"], axes=[-1]), make_node("Sub", ["x", "m"], ["c"])]
forms = {"nodes": (layer_norm("x"), 13), "centred": (before + layer_norm("c"), 13),
         "LayerNormalization": ([make_node("LayerNormalization", ["x", "scale", "bias"], ["y"])], 17)}
constants = {"two": numpy.float32(2), "eps": numpy.float32(1e-5), "scale": numpy.ones(64, numpy.float32),
             "bias": numpy.zeros(64, numpy.float32)}

def run(form, x, level):
    nodes, opset = forms[form]
    used = {name for node in nodes for name in node.input}
    graph = make_graph(nodes, "g", [make_tensor_value_info("x", 1, x.shape)], [make_tensor_value_info("y", 1, x.shape)],
                       [onnx.numpy_helper.from_array(v, k) for k, v in constants.items() if k in used])
    model = make_model(graph, opset_imports=[make_opsetid("", opset)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})[0]

levels = onnxruntime.GraphOptimizationLevel
rng = numpy.random.default_rng(0)
for mean in 0, 1000, 4000:
    x = (rng.standard_normal((64, 64)) + mean).astype(numpy.float32)
    wide = x.astype(numpy.float64)
    right = (wide - wide.mean(-1, keepdims=True)) / numpy.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    for form in forms:
        for word, level in ("optimized", levels.ORT_ENABLE_ALL), ("as it is", levels.ORT_DISABLE_ALL):
            off = abs(run(form, x, level) - right).max()
            print(f"mean {mean}, {form}, {word}: off by {off:.2g},", "right" if off < 1e-3 else "wrong")
' 2>/dev/null | tee "$work/out"
for mean in 1000 4000; do
  expect "mean $mean: the nodes are right as they are" grep -q "^mean $mean, nodes, as it is: .* right" "$work/out"
  expect "mean $mean: as one node they are wrong" grep -q "^mean $mean, nodes, optimized: .* wrong" "$work/out"
  expect "mean $mean: the node of opset 17 is wrong" \
    grep -q "^mean $mean, LayerNormalization, as it is: .* wrong" "$work/out"
  expect "mean $mean: an input that is centred before is right" \
    grep -q "^mean $mean, centred, optimized: .* right" "$work/out"
done
expect "without a mean all are right" [ "$(grep -c '^mean 0, .* right' "$work/out")" = 6 ]
done_with_it
