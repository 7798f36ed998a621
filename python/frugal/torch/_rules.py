"""Which values an op's backward function reads, and in which form they may be kept.

A hook sees a tensor and not the op that saves it. The op is known from the order of events: an op
saves its inputs just before it is dispatched, and its outputs just after. So each rule below names
an op of ATen, the argument that it saves, and the arguments of which one must need a gradient for
that. What no rule claims stays whole.

The forms:

values     The gradient is linear in the tensor, so any rounding without bias will do. A tensor
           that is the only lossy factor in each of its products is linear, too.
fine       As values, with 8 bits or more. The gradient is smooth in the tensor and not linear, so a
           bias of second order stays, which falls with the square of the step.
shape      Only the shape is read. Nothing is kept.
positive   Only the sign is read, so one bit is kept, or none where codes of the values tell it.
two        The tensor has two values. One bit is kept, without loss.
levels     The op computes f'(x) of each element alone. Its derivative is rounded without bias to one
           of a few levels, and the backward function gets an x with exactly this derivative.
places     The indices of a pooling are kept as places within their windows, without loss.
"""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch

aten = torch.ops.aten


class Saved(NamedTuple):
    """An argument that an op saves."""

    argument: int
    form: str
    needs: Tuple[int, ...]  # it is saved if one of these arguments needs a gradient; empty: any


def _bilinear(a: int, b: int) -> Tuple[Saved, ...]:
    return Saved(a, "values", (b,)), Saved(b, "values", (a,))


def _one(form: str) -> Tuple[Saved, ...]:
    return (Saved(0, form, (0,)),)


# Norms and convolutions take channels as the second axis.
CHANNELS_SECOND = {
    "convolution",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_batch_norm_with_update",
    "cudnn_batch_norm",
    "miopen_batch_norm",
    "native_group_norm",
}

_norm = (Saved(0, "values", (0, 1)),)

INPUTS: Dict[str, Tuple[Saved, ...]] = {
    # It saves both, whichever gradient is wanted.
    "convolution": (Saved(0, "values", (0, 1)), Saved(1, "values", (0, 1))),
    "mm": _bilinear(0, 1),
    "bmm": _bilinear(0, 1),
    "mv": _bilinear(0, 1),
    "dot": _bilinear(0, 1),
    "mul": _bilinear(0, 1),
    "mul_": _bilinear(0, 1),
    "addmm": _bilinear(1, 2),
    "addmv": _bilinear(1, 2),
    "addbmm": _bilinear(1, 2),
    "baddbmm": _bilinear(1, 2),
    "addcmul": _bilinear(1, 2),
    "div": (Saved(0, "values", (1,)),),
    "native_batch_norm": _norm,
    "_native_batch_norm_legit": _norm,
    "_batch_norm_with_update": _norm,
    "cudnn_batch_norm": _norm,
    "miopen_batch_norm": _norm,
    "native_layer_norm": _norm,
    "native_group_norm": (Saved(0, "values", (0, 1)),),
    "binary_cross_entropy_with_logits": _one("levels"),
    "_scaled_dot_product_flash_attention_for_cpu": (
        Saved(0, "fine", ()),
        Saved(1, "fine", ()),
        Saved(2, "values", ()),
    ),
}
for _name in (
    "avg_pool2d",
    "avg_pool3d",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
    "max_pool2d_with_indices",
    "max_pool3d_with_indices",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
    "reflection_pad1d",
    "reflection_pad2d",
    "reflection_pad3d",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
    "nll_loss_forward",
    "nll_loss2d_forward",
    "mean",
    "gather",
    "take",
    "masked_select",
    "im2col",
    "_fft_r2c",
):
    INPUTS[_name] = _one("shape")
# It saves both, because the names of its arguments occur in its formula as those of functions.
INPUTS["complex"] = (Saved(0, "shape", ()), Saved(1, "shape", ()))
for _name in (
    "gelu",
    "silu",
    "mish",
    "softplus",
    "elu",
    "hardswish",
    "hardsigmoid",
    "hardtanh",
    "leaky_relu",
    "threshold",
    "celu",
    "softshrink",
    "hardshrink",
    "clamp",
    "clamp_min",
    "clamp_max",
):
    INPUTS[_name] = INPUTS[_name + "_"] = _one("levels")

NORMS = {name for name, rules in INPUTS.items() if rules == _norm}

# Products with weights. What they read may be rounded without bias whether a gradient flows through
# it or not, as a batch that the model has cast or normalized.
PRODUCTS = {"convolution", "mm", "addmm", "bmm", "baddbmm", "addbmm"}


# The argument that the op saves first and writes then: its values are not there yet when the hook sees it.
WRITTEN = {"rrelu_with_noise": 1, "rrelu_with_noise_": 1}


def keeps_second(op: str, args: Tuple[Any, ...]) -> bool:
    """Do second derivatives stay right where the values or the derivatives that the op saves are rounded?

    Where the derivative has two values, the second one is 0. In a product with parameters the gradient
    of the other factor does not read what is rounded.
    """
    if op in PRODUCTS:
        factors = [args[rule.argument] for rule in INPUTS[op]]
        return sum(not is_parameter(one) for one in factors) < 2
    return op in _TWO


def rules_of(op: str, args: Tuple[Any, ...]) -> Tuple[Saved, ...]:
    """What the op saves, by its arguments where these decide."""
    if op in ("pow", "pow_"):  # the gradient of a square is linear in its input, those of others are not
        power = args[1] if len(args) > 1 else None  # a tensor has a power for each element
        return _one("values") if not isinstance(power, torch.Tensor) and power == 2 else ()
    if op == "binary_cross_entropy_with_logits" and len(args) > 1 and args[1].requires_grad:
        return ()  # the gradient of the target is linear in the logits, and not in their probabilities
    if op.startswith("clamp") and any(isinstance(a, torch.Tensor) for a in args[1:]):
        return ()  # the ends differ from element to element
    rules = INPUTS.get(op, ())
    if _reads_no_input(op, args):
        return (Saved(0, "shape", rules[0].needs), *rules[1:])
    return rules


def _reads_no_input(op: str, args: Tuple[Any, ...]) -> bool:
    """Does the gradient of the input alone, which does not read its values, save the input?

    A convolution and a batch norm by running statistics save it for the gradient of their weight, whether the
    weight is trained or not.
    """
    if op == "convolution" or (op in NORMS and "batch_norm" in op and len(args) > 5 and args[5] is False):
        return not (isinstance(args[1], torch.Tensor) and args[1].requires_grad)
    return False


# Outputs, by the node of the graph that the output then has: the name under which the node saves the
# output, and the form. Versions of PyTorch differ in which nodes of ops in place save what was there
# before instead.
OUTPUTS: Dict[str, Tuple[str, str]] = {
    "ReluBackward0": ("result", "positive"),
    "SigmoidBackward0": ("result", "levels"),
    "TanhBackward0": ("result", "levels"),
    "HardtanhBackward1": ("result", "levels"),
    "LeakyReluBackward1": ("result", "levels"),
    "ExpBackward0": ("result", "values"),
    "SoftmaxBackward0": ("result", "fine"),
    "SafeSoftmaxBackward0": ("result", "fine"),
    "LogSoftmaxBackward0": ("result", "levels"),
    "ScaledDotProductFlashAttentionForCpuBackward0": ("output", "values"),
}


def output_form(node: Any) -> Optional[str]:
    """The form of an output that `node` saves; None: it saves none, or no rule knows it."""
    saved, form = OUTPUTS.get(node.name(), ("", ""))
    return form if saved and hasattr(type(node), f"_raw_saved_{saved}") else None


OPS_WITH_OUTPUTS = {
    "relu",
    "relu_",
    "sigmoid",
    "sigmoid_",
    "tanh",
    "tanh_",
    "hardtanh_",
    "leaky_relu_",
    "exp",
    "exp_",
    "_softmax",
    "_safe_softmax",
    "_log_softmax",
    "_scaled_dot_product_flash_attention_for_cpu",
}

# Nodes that only look at a tensor in another way, or in another dtype. A parameter behind them is
# a parameter.
VIEWS = {
    name + "Backward0"
    for name in (
        "T",
        "View",
        "UnsafeView",
        "ReshapeAlias",
        "Transpose",
        "Permute",
        "Expand",
        "Select",
        "Slice",
        "Split",
        "SplitWithSizes",
        "Squeeze",
        "Unsqueeze",
        "Alias",
        "AsStrided",
        "ToCopy",
        "Clone",
        "Detach",
    )
}


def is_parameter(tensor: torch.Tensor) -> bool:
    """Is it a leaf that is trained, a view of one, or one in another dtype?"""
    if tensor.is_leaf:
        return tensor.requires_grad
    node = tensor.grad_fn
    for _ in range(8):
        if node is None:
            return False
        name = node.name()
        if name == "torch::autograd::AccumulateGrad":
            return True
        if name not in VIEWS:
            return False
        node = node.next_functions[0][0]
    return False


class Levels(NamedTuple):
    """Levels of a derivative, and a value of x that has each of them."""

    levels: Tuple[float, ...]
    values: Tuple[float, ...]


def _numbers(func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Dict[str, Any]:
    """The arguments of an op that are no tensors, with their defaults, by name."""
    numbers = {}
    for i, argument in enumerate(func._schema.arguments):
        value = args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value)
        if not isinstance(value, torch.Tensor):
            numbers[argument.name] = value
    return numbers


def _between(one: torch.Tensor, x: torch.Tensor, numbers: Dict[str, Any]) -> torch.Tensor:
    """The derivative of clamp, which is 1 at its ends, where that of hardtanh is 0."""
    low, high = numbers.get("min"), numbers.get("max")
    inside = torch.ones_like(x, dtype=torch.bool) if low is None else x >= low
    return (inside if high is None else inside & (x <= high)).to(one.dtype)


# The derivative of each op, as its own backward function computes it: of a tensor of ones, of what
# is saved and of the op's numbers.
Derivative = Callable[[torch.Tensor, torch.Tensor, Dict[str, Any]], torch.Tensor]
_DERIVATIVES: Dict[str, Derivative] = {
    "gelu": lambda one, x, n: aten.gelu_backward(one, x, approximate=n["approximate"]),
    "silu": lambda one, x, n: aten.silu_backward(one, x),
    "mish": lambda one, x, n: aten.mish_backward(one, x),
    "softplus": lambda one, x, n: aten.softplus_backward(one, x, n["beta"], n["threshold"]),
    "elu": lambda one, x, n: aten.elu_backward(
        one, n["alpha"], n["scale"], n["input_scale"], False, x
    ),
    "celu": lambda one, x, n: aten.elu_backward(
        one, n["alpha"], 1.0, 1.0 / n["alpha"], False, x
    ),
    "hardswish": lambda one, x, n: aten.hardswish_backward(one, x),
    "hardsigmoid": lambda one, x, n: aten.hardsigmoid_backward(one, x),
    "hardtanh": lambda one, x, n: aten.hardtanh_backward(one, x, n["min_val"], n["max_val"]),
    "leaky_relu": lambda one, x, n: aten.leaky_relu_backward(one, x, n["negative_slope"], False),
    "softshrink": lambda one, x, n: aten.softshrink_backward(one, x, n["lambd"]),
    "hardshrink": lambda one, x, n: aten.hardshrink_backward(one, x, n["lambd"]),
    "threshold": lambda one, x, n: aten.threshold_backward(one, x, n["threshold"]),
    "clamp": _between,
    "clamp_min": _between,
    "clamp_max": _between,
    "sigmoid": lambda one, y, n: aten.sigmoid_backward(one, y),
    "tanh": lambda one, y, n: aten.tanh_backward(one, y),
    # The gradient is dy - exp(y) sum(dy): what is rounded is exp(y), a probability.
    "_log_softmax": lambda one, y, n: y.exp(),
    # It is the derivative up to terms and factors without x.
    "binary_cross_entropy_with_logits": lambda one, x, n: x.sigmoid(),
}
# Where outputs have all their derivatives.
# The lowest probability is 0 in f32 and not a number below the normal ones, with which products of the
# gradient would take many times longer.
_RANGES = {"sigmoid": (0.5, 1.0), "tanh": (0.0, 1.0), "_log_softmax": (-120.0, 0.0)}
_LOSSES = {"_log_softmax", "binary_cross_entropy_with_logits"}  # 8 bits: all gradients begin here
_TWO = {  # derivatives
    "clamp",
    "clamp_min",
    "clamp_max",
    "hardsigmoid",
    "hardtanh",
    "leaky_relu",
    "threshold",
    "softshrink",
    "hardshrink",
}
_ENDS = ("min_val", "max_val", "min", "max", "threshold", "lambd")  # where these derivatives change

_tables: Dict[Any, Optional[Levels]] = {}


def width_of(op: str, bits: int) -> int:
    """The bits of a code of levels: 1, 2, 4 or 8."""
    if op in _TWO:
        return 1
    if op in _LOSSES:
        return 8
    return 2 if bits <= 2 else 4 if bits <= 4 else 8


def has_derivative(op: str) -> bool:
    return op in _DERIVATIVES


def numbers_of(func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Dict[str, Any]:
    return _numbers(func, args, kwargs)


def derivative(op: str, x: torch.Tensor, numbers: Dict[str, Any]) -> torch.Tensor:
    """f'(x) in f32."""
    if op in _TWO:  # PyTorch rounds the places where these derivatives change into the dtype of x
        try:
            return _DERIVATIVES[op](torch.ones_like(x), x, numbers).float()
        except NotImplementedError:  # nor will the backward pass have it for this dtype
            pass
        except RuntimeError as why:
            if "not implemented" not in str(why):
                raise
    x = x.float()
    return _DERIVATIVES[op](torch.ones_like(x), x, numbers)


def levels(op: str, numbers: Dict[str, Any], width: int, dtype: torch.dtype) -> Optional[Levels]:
    """Levels that lie as evenly as values of `dtype` allow. None: the op has less than two."""
    key = (op, tuple(sorted((k, str(v)) for k, v in numbers.items())), width, dtype)
    if key not in _tables:
        _tables[key] = _make_levels(op, numbers, width, dtype)
    return _tables[key]


def _range_of(op: str, numbers: Dict[str, Any], dtype: torch.dtype) -> Tuple[float, float]:
    """Where an op has all its derivatives, as far as values of `dtype` go."""
    if op in _RANGES:
        return _RANGES[op]
    slope = {"softplus": "beta", "elu": "input_scale", "celu": "alpha"}.get(op)
    factor = abs(float(numbers[slope])) if slope else 1.0
    factor = 1 / factor if factor > 0 and op == "celu" else factor
    end = 40 / factor if factor > 0 else 40.0
    end = min(end, torch.finfo(dtype).max, torch.finfo(torch.float32).max)
    return -end, end


def _make_levels(
    op: str, numbers: Dict[str, Any], width: int, dtype: torch.dtype
) -> Optional[Levels]:
    low, high = _range_of(op, numbers, dtype)
    ends = [float(numbers[name]) for name in _ENDS if numbers.get(name) is not None]
    if op in _TWO and ends:  # these may lie anywhere
        middle = 0.0 if "lambd" in numbers else sum(ends) / len(ends)
        low, high = min(ends) - 1, max(ends) + 1
        grid = torch.tensor([low, middle, high], dtype=torch.float64)
    else:
        grid = torch.linspace(low, high, 800001, dtype=torch.float64)
    rounded = grid.to(dtype)  # values that the dtype has
    found = derivative(op, rounded, numbers)
    grid = rounded.float()
    least, most = float(found.min()), float(found.max())
    if not most > least:
        return None
    # Far from 0 a derivative is constant, and all units there get exactly that one. Four levels are too few for
    # both ends, and for those of ops that are smooth, because the others would lie too far apart.
    ends = (0, -1) if width > 2 else {"hardswish": (0,), "elu": (-1,)}.get(op, ())
    far = {float(found[i]): float(grid[i]) for i in ends if least < float(found[i]) < most}
    order = torch.argsort(found)
    found, grid = found[order].contiguous(), grid[order]
    wanted = _evenly(least, most, 1 << width, list(far))
    at = torch.searchsorted(found, wanted).clamp(0, len(found) - 1)
    before = (at - 1).clamp(min=0)
    nearer = (found[before] - wanted).abs() < (found[at] - wanted).abs()
    at = torch.where(nearer, before, at)
    at[0], at[-1] = 0, len(found) - 1
    levels_ = found[at].tolist()
    values = [far.get(level, x) for level, x in zip(levels_, grid[at].tolist())]
    return Levels(tuple(levels_), tuple(values))


def _evenly(least: float, most: float, count: int, held: List[float]) -> torch.Tensor:
    """Numbers from `least` to `most`, those of `held` among them, as even as these allow."""
    places = {0: least, count - 1: most}
    for level in held:
        place = round((level - least) / (most - least) * (count - 1))
        places[min(max(place, 1), count - 2)] = level
    known = sorted(places)
    parts = [
        torch.linspace(places[a], places[b], b - a + 1, dtype=torch.float64)[:-1] for a, b in zip(known, known[1:])
    ]
    return torch.cat([*parts, torch.tensor([most], dtype=torch.float64)]).float()

