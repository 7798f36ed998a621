#!/usr/bin/env bash
# onnx 1.17: its ReferenceEvaluator, which is there to say what an operator means, computes Softmax, LogSoftmax and
# Hardmax of the operator sets before 13 along the last axis. The standard joins all axes from axis=1 on there, and so
# does ONNX Runtime 1.21. Its LogSoftmax is the logarithm of Softmax in all sets, so a small probability is minus
# infinity.
# Seen, f32 of [2, 3, 4], set 11: the first 4 values of Softmax add up to 1, and to 0.0003 in ONNX Runtime, where all 12
# values of a sample add up to 1. Set 13: equal. LogSoftmax of 0 and -200 is 0 and -inf, and 0 and -200 in ONNX Runtime.
# So an importer that is checked by it, or a converter, learns another function.
# Frugal: files that we export are of set 13 and end with logits (docs/guide/export.md, which warns of it). Our tests
# run them with numpy code of their own (tests/export/onnx_test.py).
. "$(dirname "$0")/packages.sh"
packages trixie 'python3-onnx=1.17.0*' 'python3-onnxruntime=1.21.0*'
# Debian's builds of the two libraries register one table of operators, so each has a process of its own.
for runner in reference runtime; do
  python_in trixie -c '
import sys
import numpy
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

def run(op, opset, x):
    graph = make_graph([make_node(op, ["x"], ["y"])], "g", [make_tensor_value_info("x", 1, x.shape)],
                       [make_tensor_value_info("y", 1, x.shape)])
    model = make_model(graph, opset_imports=[make_opsetid("", opset)], ir_version=8)
    if sys.argv[1] == "reference":
        from onnx.reference import ReferenceEvaluator
        return ReferenceEvaluator(model).run(None, {"x": x})[0]
    import onnxruntime
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]

x = numpy.arange(24, dtype=numpy.float32).reshape(2, 3, 4)
for opset in 11, 13:
    y = run("Softmax", opset, x)
    print("Softmax-%d: %.4f of the first 4, %.4f of the first 12" % (opset, y[0, 0].sum(), y[0].sum()))
    y = run("LogSoftmax", opset, x)
    print("LogSoftmax-%d: largest %.0f, %.0f, %.0f" % (opset, *y[0].max(axis=1)))
    y = run("Hardmax", opset, x)
    print("Hardmax-%d: %d ones" % (opset, y.sum()))
    y = run("LogSoftmax", opset, numpy.array([[0, -200]], numpy.float32))
    print("LogSoftmax-%d of 0 and -200: %g and %g" % (opset, *y[0]))
' $runner 2>/dev/null | sed "s/^/$runner, /" | tee -a "$work/out"
done
for line in 'reference, Softmax-11: 1.0000 of the first 4, 3.0000 of the first 12' \
  'runtime, Softmax-11: 0.0003 of the first 4, 1.0000 of the first 12' 'reference, Hardmax-11: 6 ones' \
  'runtime, Hardmax-11: 2 ones' 'reference, LogSoftmax-11 of 0 and -200: 0 and -inf' \
  'runtime, LogSoftmax-11 of 0 and -200: 0 and -200' 'reference, LogSoftmax-13 of 0 and -200: 0 and -inf' \
  'runtime, LogSoftmax-13 of 0 and -200: 0 and -200'; do
  expect "$line" grep -qxF "$line" "$work/out"
done
for op in Softmax Hardmax; do
  expect "$op-13 is equal" [ "$(sed -n "s/^[a-z]*, $op-13: //p" "$work/out" | sort -u | wc -l)" = 1 ]
done
done_with_it
