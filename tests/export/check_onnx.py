#!/usr/bin/env python3
"""Checks ONNX files against what Frugal computed: check_onnx.py [--opencv] MODEL.onnx EXAMPLE.safetensors ...

The checker of the onnx package, its strict shape inference, the numbers by numpy, and with --opencv by OpenCV's dnn."""
import json
import struct
import sys

import numpy as np
import onnx

import onnx_numpy

TOLERANCE = 1e-4  # relative to the largest output, or to 1 if that is larger


def read_safetensors(path):
    with open(path, 'rb') as file:
        length, = struct.unpack('<Q', file.read(8))
        header, data = json.loads(file.read(length)), file.read()
    dtypes = {'F32': np.float32, 'I64': np.int64, 'F16': np.float16, 'F64': np.float64, 'I32': np.int32}
    return {name: np.frombuffer(data[slice(*t['data_offsets'])], dtypes[t['dtype']]).reshape(t['shape'])
            for name, t in header.items() if name != '__metadata__'}


def difference(got, expected):
    assert got.shape == expected.shape, f'expected {expected.shape}, got {got.shape}'
    assert np.isfinite(expected).all() and np.isfinite(got).all(), 'expected finite numbers'
    return 0.0 if got.size == 0 else float(np.abs(got - expected).max() / max(1, np.abs(expected).max()))


def check(model_path, example_path, by_opencv):
    onnx.checker.check_model(model_path, full_check=True)
    model = onnx.load(model_path)
    assert model.opset_import[0].version == 13, 'expected opset 13'
    example = read_safetensors(example_path)
    outputs = [o.name for o in model.graph.output]
    inputs = {k: v for k, v in example.items() if k not in outputs}
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    assert len(inferred.graph.value_info) > 0 or len(model.graph.node) < 2
    said = []
    for name, got in onnx_numpy.run(model, inputs).items():
        error = difference(got, example[name])
        spread = 1.0
        if example[name].size > 0 and example[name].ndim > 0:
            spread = float(np.std(example[name], axis=0).max())  # over the samples
        said.append(f'numpy {error:.1e} of {spread:.1g}')
        assert error <= TOLERANCE, f'numpy: {name} differs by {error:.2e}'
    if by_opencv:
        import cv2
        net = cv2.dnn.readNetFromONNX(model_path)
        for name, x in inputs.items():
            net.setInput(x, name)
        error = difference(net.forward(outputs[0]), example[outputs[0]])
        said.append(f'OpenCV {error:.1e}')
        assert error <= TOLERANCE, f'OpenCV: differs by {error:.2e}'
    return f'{len(model.graph.node)} nodes, {", ".join(said)}'


def main(arguments):
    by_opencv = '--opencv' in arguments
    files = [a for a in arguments if a != '--opencv']
    bad = 0
    for model, example in zip(files[::2], files[1::2]):
        try:
            print(f'{model}: {check(model, example, by_opencv)}', flush=True)
        except Exception as e:
            bad += 1
            print(f'{model}: {type(e).__name__}: {e}', flush=True)
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
