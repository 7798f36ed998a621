#!/usr/bin/env bash
# onnx 1.17: its ReferenceEvaluator, which is there to say what an operator means, computes LSTM and GRU in one way
# alone: forwards, to the end of the longest sequence, with sigmoid and tanh, and without a limit. It passes over
# direction="reverse", activations, clip and input_forget, and for LSTM over sequence_lens. RNN passes over the
# direction and clip. There is no warning; a comment in its source says that attributes are still to do. The rest is an
# error: "bidirectional", sequence_lens of several sequences for GRU and RNN, Relu of RNN. So a converter, or an
# importer, that is checked by it learns to read sequences from the wrong end, and counts padding. ONNX Runtime 1.21
# obeys all of these.
# Seen, 4 steps of 2 sequences with the values 0.25, 0.5, ... 2 and equal weights: the last outputs of an LSTM are 0.53
# and 0.62 in the reference, whatever it is asked for. In ONNX Runtime they are so for a plain one, with "reverse" 0.27
# and 0.38, with the lengths 2 and 4 0.15 and 0.62, with clip=0.1 0.05 twice, with Relu 0.84 and 1.15, with input_forget
# 0.42 and 0.47. GRU has 0.43 and 0.48 for all in the reference, and RNN 0.77 and 0.83; in ONNX Runtime each differs.
# Frugal: our files have no recurrent node, as no network of the zoo has one, and our tests run them with numpy code of
# their own (tests/export/onnx_test.py). docs/guide/export.md says it to those who check other files by the reference.
. "$(dirname "$0")/packages.sh"
packages trixie 'python3-onnx=1.17.0*' 'python3-onnxruntime=1.21.0*'
# Debian's builds of the two libraries register one table of operators, so each has a process of its own.
for runner in reference runtime; do
  python_in trixie -c '
import sys
import numpy
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

gates = {"RNN": 1, "GRU": 3, "LSTM": 4}
relu = {"RNN": ["Relu"], "GRU": ["Sigmoid", "Relu"], "LSTM": ["Sigmoid", "Relu", "Relu"]}

def last(op, lengths=None, **attributes):
    feeds = {
        "X": numpy.arange(1, 9, dtype="f4").reshape(4, 2, 1) / 4,
        "W": numpy.full((1, gates[op], 1), 0.5, "f4"),
        "R": numpy.full((1, gates[op], 1), 0.25, "f4"),
    }
    names = ["X", "W", "R"]
    if lengths:
        feeds["lengths"] = numpy.array(lengths, "i4")
        names += ["", "lengths"]
    node = make_node(op, names, ["Y", "Y_h"], hidden_size=1, **attributes)
    inputs = [make_tensor_value_info(k, 6 if k == "lengths" else 1, v.shape) for k, v in feeds.items()]
    graph = make_graph([node], "graph", inputs, [make_tensor_value_info("Y_h", 1, [1, 2, 1])])
    model = make_model(graph, opset_imports=[make_opsetid("", 14)], ir_version=8)
    try:
        if sys.argv[1] == "reference":
            from onnx.reference import ReferenceEvaluator
            (state,) = ReferenceEvaluator(model).run(None, feeds)
        else:
            import onnxruntime
            session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            (state,) = session.run(None, feeds)
    except (ValueError, RuntimeError, NotImplementedError):
        return "error"
    return "%.2f %.2f" % tuple(state.ravel())

for op in gates:
    asked = [("plain", {}), ("reverse", dict(direction="reverse")), ("clip", dict(clip=0.1))]
    asked += [("relu", dict(activations=relu[op])), ("lengths", dict(lengths=[2, 4]))]
    if op == "LSTM":
        asked.append(("input_forget", dict(input_forget=1)))
    for what, attributes in asked:
        print(sys.argv[1], op, what + ":", last(op, **attributes))
' "$runner" 2>/dev/null | tee -a "$work/out"
done
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
reference RNN plain: 0.77 0.83
reference RNN reverse: 0.77 0.83
reference RNN clip: 0.77 0.83
reference RNN relu: error
reference RNN lengths: error
reference GRU plain: 0.43 0.48
reference GRU reverse: 0.43 0.48
reference GRU clip: 0.43 0.48
reference GRU relu: 0.43 0.48
reference GRU lengths: error
reference LSTM plain: 0.53 0.62
reference LSTM reverse: 0.53 0.62
reference LSTM clip: 0.53 0.62
reference LSTM relu: 0.53 0.62
reference LSTM lengths: 0.53 0.62
reference LSTM input_forget: 0.53 0.62
runtime RNN plain: 0.77 0.83
runtime RNN reverse: 0.24 0.38
runtime RNN clip: 0.10 0.10
runtime RNN relu: 1.06 1.22
runtime RNN lengths: 0.39 0.83
runtime GRU plain: 0.43 0.48
runtime GRU reverse: 0.28 0.36
runtime GRU clip: 0.09 0.09
runtime GRU relu: 0.51 0.59
runtime GRU lengths: 0.18 0.48
runtime LSTM plain: 0.53 0.62
runtime LSTM reverse: 0.27 0.38
runtime LSTM clip: 0.05 0.05
runtime LSTM relu: 0.84 1.15
runtime LSTM lengths: 0.15 0.62
runtime LSTM input_forget: 0.42 0.47
END_OF_LINES
done_with_it
