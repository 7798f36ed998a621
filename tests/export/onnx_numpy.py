"""Runs ONNX files of opset 13 with numpy: the ops that Frugal writes, by the text of the ONNX specification.

Python's own onnx package has an evaluator since 1.13 only, and Debian 12 has 1.12."""
import math

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import numpy_helper

DTYPES = {1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 11: np.float64}
erf = np.vectorize(math.erf, otypes=[np.float64])


def padded(x, pads, value):
    n = len(pads) // 2
    # (negative pads cut, and are not written)
    return np.pad(x, [(0, 0)] * (x.ndim - n) + list(zip(pads[:n], pads[n:])), constant_values=value)


def windows(x, kernel, strides, dilations):
    """[N, C, *spatial] -> [N, C, *out, *kernel]"""
    n = len(kernel)
    full = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    view = sliding_window_view(x, full, axis=tuple(range(2, 2 + n)))
    steps = (slice(None),) * 2 + tuple(slice(None, None, s) for s in strides) + tuple(
        slice(None, None, d) for d in dilations)
    return view[steps]


def conv(x, w, b=None, *, kernel_shape, strides, pads, dilations, group):
    n = len(kernel_shape)
    v = windows(padded(x, pads, 0), kernel_shape, strides, dilations)
    inner = x.shape[1] // group
    outer = w.shape[0] // group
    parts = []
    for g in range(group):
        some = v[:, g * inner:(g + 1) * inner]
        axes = [1] + list(range(2 + n, 2 + 2 * n))
        out = np.tensordot(some, w[g * outer:(g + 1) * outer], (axes, list(range(1, 2 + n))))
        parts.append(np.moveaxis(out, -1, 1))
    y = np.concatenate(parts, 1)
    return y if b is None else y + b.reshape((1, -1) + (1,) * n)


def conv_transpose(x, w, b=None, *, kernel_shape, strides, pads, output_padding, dilations, group):
    n, c = x.shape[:2]
    out_c = w.shape[1]
    axes = range(len(kernel_shape))
    extents = [(s - 1) * st + (k - 1) * d + 1 + op for s, st, k, d, op in zip(
        x.shape[2:], strides, kernel_shape, dilations, output_padding)]
    y = np.zeros([n, out_c * group] + extents, x.dtype)
    inner = c // group
    for g in range(group):
        for at in np.ndindex(*kernel_shape):
            part = np.einsum('nc...,ck->nk...', x[:, g * inner:(g + 1) * inner],
                             w[(slice(g * inner, (g + 1) * inner), slice(None)) + at])
            places = tuple(slice(at[i] * dilations[i],
                                 at[i] * dilations[i] + x.shape[2 + i] * strides[i], strides[i])
                           for i in axes)
            y[(slice(None), slice(g * out_c, (g + 1) * out_c)) + places] += part
    y = y[(slice(None), slice(None)) + tuple(
        slice(pads[i], y.shape[2 + i] - pads[len(axes) + i]) for i in axes)]
    return y if b is None else y + b.reshape((1, -1) + (1,) * len(axes))


def max_pool(x, *, kernel_shape, strides, pads):
    v = windows(padded(x, pads, -np.inf), kernel_shape, strides, [1] * len(kernel_shape))
    return v.max(tuple(range(x.ndim, v.ndim)))


def average_pool(x, *, kernel_shape, strides, pads=None, count_include_pad=0):
    pads = pads or [0] * 2 * len(kernel_shape)
    ones = [1] * len(kernel_shape)
    axes = tuple(range(x.ndim, x.ndim + len(kernel_shape)))
    total = windows(padded(x, pads, 0), kernel_shape, strides, ones).sum(axes)
    counted = padded(np.ones_like(x), pads, count_include_pad)
    return total / windows(counted, kernel_shape, strides, ones).sum(axes)


def slice_(x, starts, ends, axes, steps=None):
    index = [slice(None)] * x.ndim
    steps = [1] * len(axes) if steps is None else steps
    for begin, end, axis, step in zip(starts, ends, axes, steps):
        index[axis] = slice(int(begin), int(end), int(step))
    return x[tuple(index)]


def reshape(x, shape):
    return x.reshape([x.shape[i] if s == 0 else int(s) for i, s in enumerate(shape)])


def unsqueeze(x, axes):
    for axis in sorted(int(a) for a in axes):
        x = np.expand_dims(x, axis)
    return x


def top_k(x, k, *, axis, largest, sorted):
    assert largest == 0 and sorted == 1 and int(k[0]) == x.shape[axis]
    index = np.argsort(x, axis, kind='stable')
    return np.take_along_axis(x, index, axis), index


def scatter_nd(data, indices, updates):
    assert len(np.unique(indices[:, 0])) == len(indices)  # otherwise the result depends on the order
    out = data.copy()
    out[indices[:, 0]] = updates
    return out


def scatter_elements(data, indices, updates, *, axis):
    out = data.copy()
    np.put_along_axis(out, indices, updates, axis)
    return out


def batch_norm(x, scale, bias, mean, var, *, epsilon, momentum=0.9):  # in evaluation no momentum counts
    shape = (1, -1) + (1,) * (x.ndim - 2)
    w = scale / np.sqrt(var + np.float32(epsilon))
    return (x - mean.reshape(shape)) * w.reshape(shape) + bias.reshape(shape)


def instance_norm(x, scale, bias, *, epsilon):
    axes = tuple(range(2, x.ndim))
    shape = (1, -1) + (1,) * (x.ndim - 2)
    y = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + np.float32(epsilon))
    return y * scale.reshape(shape) + bias.reshape(shape)


def softmax(x, *, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def resize(x, _, scales, *, mode, coordinate_transformation_mode, nearest_mode=b'floor'):
    for axis, scale in enumerate(scales):
        size = x.shape[axis]
        at = np.arange(int(np.floor(size * scale)))
        if mode == b'nearest':
            assert (coordinate_transformation_mode, nearest_mode) == (b'asymmetric', b'floor')
            x = np.take(x, np.floor(at / scale).astype(int), axis)
        elif len(at) != size:
            at = (at * (size - 1) / max(1, len(at) - 1) if coordinate_transformation_mode == b'align_corners' else
                  (at + 0.5) / scale - 0.5).clip(0, size - 1)
            low = np.floor(at).astype(int)
            share = (at - low).reshape([-1] + [1] * (x.ndim - axis - 1))
            x = np.take(x, low, axis) * (1 - share) + np.take(x, (low + 1).clip(max=size - 1), axis) * share
    return x.astype(np.float32)


def reduce(f):
    return lambda x, axes=None, keepdims=1: f(x, tuple(int(a) for a in axes) if axes is not None else None,
                                               keepdims=bool(keepdims))


def gemm(a, b, c=None, transB=0):
    y = a @ (b.T if transB else b)
    return y if c is None else y + c


def split(x, sizes, axis):
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis))


def pad(x, pads, value=0, mode=b'constant'):
    assert mode == b'constant'
    return padded(x, [int(p) for p in pads], value)


def binary(f):
    def run(a, b):
        assert a.dtype == b.dtype, (a.dtype, b.dtype)  # ONNX casts nothing
        return f(a, b)
    return run


def where(c, a, b):
    assert c.dtype == np.bool_ and a.dtype == b.dtype
    return np.where(c, a, b)


def pow_(a, b):
    return np.power(a, b).astype(a.dtype)


def integer_safe_div(a, b):
    with np.errstate(divide='ignore'):
        return a / b


OPS = {
    'Add': binary(np.add), 'Sub': binary(np.subtract), 'Mul': binary(np.multiply), 'Div': binary(integer_safe_div),
    'Neg': np.negative, 'Exp': np.exp, 'Log': np.log, 'Sqrt': np.sqrt, 'Tanh': np.tanh, 'Cos': np.cos, 'Sin': np.sin,
    'Sigmoid': lambda x: (1 / (1 + np.exp(-x))).astype(x.dtype), 'Relu': lambda x: np.maximum(x, 0), 'Pow': pow_,
    'LeakyRelu': lambda x, alpha: np.where(x > 0, x, np.float32(alpha) * x),
    'Elu': lambda x, alpha: np.where(x > 0, x, alpha * (np.exp(np.minimum(x, 0)) - 1)).astype(x.dtype),
    'Erf': lambda x: erf(x).astype(x.dtype), 'Clip': lambda x, lo, hi: np.clip(x, lo, hi),
    'Cast': lambda x, to: x.astype(DTYPES[to]), 'Identity': lambda x: x,
    'ReduceSum': reduce(np.sum), 'ReduceMean': reduce(np.mean), 'ReduceMax': reduce(np.max),
    'Softmax': softmax, 'LogSoftmax': lambda x, axis: np.log(softmax(x, axis=axis)),
    'Gemm': gemm, 'MatMul': binary(np.matmul), 'Transpose': lambda x, perm: x.transpose(perm),
    'Reshape': reshape, 'Flatten': lambda x, axis: x.reshape(int(np.prod(x.shape[:axis])), -1),
    'Slice': slice_, 'Concat': lambda *xs, axis: np.concatenate(xs, axis), 'Pad': pad,
    'Conv': conv, 'ConvTranspose': conv_transpose, 'BatchNormalization': batch_norm,
    'InstanceNormalization': instance_norm, 'MaxPool': max_pool, 'AveragePool': average_pool,
    'GlobalAveragePool': lambda x: x.mean(tuple(range(2, x.ndim)), keepdims=True), 'Resize': resize,
    'Gather': lambda x, i, axis: np.take(x, i, axis), 'Unsqueeze': unsqueeze,
    'Squeeze': lambda x, axes: x.squeeze(tuple(int(a) for a in axes)),
    'Equal': binary(np.equal), 'Less': binary(np.less), 'Greater': binary(np.greater),
    'LessOrEqual': binary(np.less_equal), 'Max': binary(np.maximum), 'Or': binary(np.logical_or), 'Not': np.logical_not,
    'Where': where, 'Range': lambda a, b, step: np.arange(a, b, step, dtype=a.dtype), 'Split': split,
    'Expand': lambda x, shape: x * np.ones([int(s) for s in shape], x.dtype),
    'ScatterND': scatter_nd, 'ScatterElements': scatter_elements, 'TopK': top_k,
    'CumSum': lambda x, axis: np.cumsum(x, int(axis)), 'NonZero': lambda x: np.array(np.nonzero(x), np.int64),
    'GatherElements': lambda x, i, axis: np.take_along_axis(x, i, axis),
    'Shape': lambda x: np.array(x.shape, np.int64),
}


def attribute(a):
    return {1: a.f, 2: a.i, 3: a.s, 7: list(a.ints)}[a.type]


def centred_inputs(graph):
    """Tensors of which the graph takes the mean away just before it squares them."""
    of = {node.output[0]: node for node in graph.node}
    found = []
    for node in graph.node:
        if node.op_type != 'Pow':
            continue
        centred = of.get(node.input[0])
        mean = of.get(centred.input[1]) if centred is not None and centred.op_type == 'Sub' else None
        if mean is not None and mean.op_type == 'ReduceMean' and mean.input[0] == centred.input[0]:
            found.append(centred.input[0])
    return found


def run(model, inputs, also=()):
    """Outputs by name, and the tensors whose names are in `also`."""
    values = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for value in model.graph.input:
        x = inputs[value.name]
        declared = value.type.tensor_type
        assert x.dtype == DTYPES[declared.elem_type], (value.name, x.dtype)
        for extent, dim in zip(x.shape, declared.shape.dim, strict=True):
            assert not dim.HasField('dim_value') or dim.dim_value == extent, (value.name, x.shape)
        values[value.name] = x
    last_use = {name: i for i, node in enumerate(model.graph.node) for name in node.input}
    keep = {o.name for o in model.graph.output} | set(also)
    for i, node in enumerate(model.graph.node):
        arguments = [values[name] if name else None for name in node.input]
        try:
            out = OPS[node.op_type](*arguments, **{a.name: attribute(a) for a in node.attribute})
        except Exception as e:
            raise RuntimeError(f'{node.op_type} {node.name}: {e}') from e
        for name, value in zip(node.output, out if isinstance(out, tuple) else (out,), strict=True):
            values[name] = np.asarray(value)
        for name in set(node.input):
            if last_use[name] == i and name not in keep:
                values.pop(name, None)
    return {name: values[name] for name in keep}
