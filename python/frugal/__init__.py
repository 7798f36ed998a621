"""Frugal: deep learning with compressed activations.

    import frugal
    run = frugal.train("configs/fashion_mnist_mlp.json", out="runs/a")
    print(run.summary["final"]["test_accuracy"])
    classes = run.load().predict(pictures)

`frugal.torch` compresses what PyTorch's own models save for the backward pass. It is a package of
its own, because `import frugal` needs no PyTorch.
"""

from frugal._errors import (
    ConfigError,
    Error,
    InternalError,
    Interrupted,
    NotFinite,
    OutOfMemory,
)
from frugal._frugal import exp, gelu, log, mean, relu, reshape, sigmoid, silu, softmax, sum, tanh  # noqa: A004
from frugal._frugal import has_cuda as has_cuda
from frugal._frugal import version as __version__
from frugal._networks import (
    Network,
    Variable,
    binary_cross_entropy,
    cross_entropy,
    memory,
    mse_loss,
    network,
    networks,
    no_grad,
    op,
    optimizer,
    optimizers,
    policy,
    sequential,
    variable,
)
from frugal._run import Model, Run, evaluate, load, plan, report, save_arrays, train
from frugal._tensor import Tensor, from_dlpack, tensor

__all__ = [
    "ConfigError",
    "Error",
    "InternalError",
    "Interrupted",
    "Model",
    "Network",
    "NotFinite",
    "OutOfMemory",
    "Run",
    "Tensor",
    "Variable",
    "binary_cross_entropy",
    "cross_entropy",
    "evaluate",
    "exp",
    "from_dlpack",
    "gelu",
    "has_cuda",
    "load",
    "log",
    "mean",
    "memory",
    "mse_loss",
    "network",
    "networks",
    "no_grad",
    "op",
    "optimizer",
    "optimizers",
    "plan",
    "policy",
    "relu",
    "report",
    "reshape",
    "save_arrays",
    "sequential",
    "sigmoid",
    "silu",
    "softmax",
    "sum",
    "tanh",
    "tensor",
    "train",
    "variable",
]
