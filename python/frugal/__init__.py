"""Frugal: deep learning with compressed activations.

    import frugal
    run = frugal.train("configs/mnist_demo.json", out="runs/a")
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
from frugal._frugal import has_cuda as has_cuda
from frugal._frugal import version as __version__
from frugal._run import Model, Run, evaluate, load, plan, report, save_arrays, train
from frugal._tensor import Tensor, from_dlpack, tensor

__all__ = [
    "ConfigError",
    "Error",
    "InternalError",
    "Interrupted",
    "Model",
    "NotFinite",
    "OutOfMemory",
    "Run",
    "Tensor",
    "evaluate",
    "from_dlpack",
    "has_cuda",
    "load",
    "plan",
    "report",
    "save_arrays",
    "tensor",
    "train",
]
