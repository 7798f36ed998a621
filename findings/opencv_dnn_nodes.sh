#!/usr/bin/env bash
# OpenCV 4.6 and 4.10: its dnn module reads ONNX nodes whose attributes or shapes it then passes over, without an error.
# Outputs have the right shape and other values. The commonest is AveragePool with count_include_pad=1, as which
# PyTorch's AvgPool2d with padding is exported: OpenCV divides by the pixels that are there, not by the window.
# Seen. AveragePool of 3 x 3 ones with a window of 3 x 3 and a padding of 1: 1 in the corner (right: 4/9); a node Pad
# before it makes it right. MaxPool with dilations=2 takes neighbours, and auto_pad=SAME_LOWER pads at the end. PRelu
# with a slope for each column takes it for the channels. ReduceSumSquare over an axis of one element is the element in
# 4.10, and its square in 4.6.
# Frugal: an average that counts its padding is written as Pad and AveragePool (export/lower_image.cpp, avg_pool2d);
# tests/export/onnx_export_test.cpp, "an average that counts its padding pads first". None of the other nodes is
# written; tests/export/onnx_test.py gives networks to OpenCV, and docs/guide/export.md names the finding.
. "$(dirname "$0")/packages.sh"
packages bookworm 'python3-opencv=4.6.0*' 'python3-onnx=1.12.0*'
packages trixie 'python3-opencv=4.10.0*' 'python3-onnx=1.17.0*'
for suite in bookworm trixie; do
  python_in "$suite" -c '
import cv2
import numpy
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info
from onnx.numpy_helper import from_array

def run(name, shown, x, right, constants=(), **attributes):
    x, right = numpy.array(x, numpy.float32), numpy.array(right, numpy.float32)
    names = ["c%d" % i for i in range(len(constants))]
    graph = make_graph([make_node(name.split(",")[0].split()[0], ["x", *names], ["y"], **attributes)], "g",
                       [make_tensor_value_info("x", 1, x.shape)], [make_tensor_value_info("y", 1, right.shape)],
                       [from_array(numpy.array(c, numpy.float32), name) for c, name in zip(constants, names)])
    model = make_model(graph, opset_imports=[make_opsetid("", 13)], ir_version=7)
    try:
        net = cv2.dnn.readNetFromONNX(model.SerializeToString())
        net.setInput(x)
        y = net.forward()
        words = " ".join("%.4g" % v for v in y.ravel()[:shown])
    except cv2.error:
        words = "an error"
    print("%s: %s, right %s" % (name, words, " ".join("%.4g" % v for v in right.ravel()[:shown])))

ones, columns = numpy.ones((1, 1, 3, 3)), numpy.arange(9).reshape(1, 1, 3, 3)
counted = numpy.array([[[[4, 6, 4], [6, 9, 6], [4, 6, 4]]]]) / 9
window, around = {"kernel_shape": [3, 3]}, numpy.pad(ones, ((0, 0), (0, 0), (1, 1), (1, 1)))
run("AveragePool, padding counts", 3, ones, counted, pads=[1, 1, 1, 1], count_include_pad=1, **window)
run("AveragePool, padding does not count", 3, ones, ones, pads=[1, 1, 1, 1], count_include_pad=0, **window)
run("AveragePool, padded before", 3, around, counted, **window)
run("MaxPool, dilations", 1, columns, [[[[8]]]], kernel_shape=[2, 2], dilations=[2, 2])
run("MaxPool, SAME_LOWER", 4, columns, [[[[0, 2], [6, 8]]]], kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_LOWER")
run("PRelu, a slope for each column", 4, -numpy.ones((1, 2, 1, 2)), [[[[-1, -2]], [[-1, -2]]]], [[1, 2]])
run("ReduceSumSquare of one element", 2, [[[[2, 3]]]], [[[[4, 9]]]], axes=[0])
' 2>/dev/null | sed "s/^/$suite, /" | tee -a "$work/out"
done
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
bookworm, AveragePool, padding counts: 1 1 1, right 0.4444 0.6667 0.4444
bookworm, AveragePool, padding does not count: 1 1 1, right 1 1 1
bookworm, AveragePool, padded before: 0.4444 0.6667 0.4444, right 0.4444 0.6667 0.4444
bookworm, MaxPool, dilations: 4, right 8
bookworm, MaxPool, SAME_LOWER: 4 5 7 8, right 0 2 6 8
bookworm, PRelu, a slope for each column: -1 -1 -2 -2, right -1 -2 -1 -2
bookworm, ReduceSumSquare of one element: 4 9, right 4 9
trixie, AveragePool, padding counts: 1 1 1, right 0.4444 0.6667 0.4444
trixie, AveragePool, padding does not count: 1 1 1, right 1 1 1
trixie, AveragePool, padded before: 0.4444 0.6667 0.4444, right 0.4444 0.6667 0.4444
trixie, MaxPool, dilations: 4, right 8
trixie, MaxPool, SAME_LOWER: 4 5 7 8, right 0 2 6 8
trixie, PRelu, a slope for each column: -1 -1 -2 -2, right -1 -2 -1 -2
trixie, ReduceSumSquare of one element: 2 3, right 4 9
END_OF_LINES
done_with_it
