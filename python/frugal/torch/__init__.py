"""Compressed activations for models of PyTorch.

    import frugal.torch as ft
    with ft.compress(model, bits=4) as memory:
        loss = loss_of(model(x), y)
        loss.backward()
    print(memory)

What the model's ops save for the backward pass is packed into a few bits, so that the expected
gradient is unchanged. `frugal/torch/_rules.py` says which op's saves are kept in which form.
"""

from frugal.torch._compress import compress
from frugal.torch._memory import Memory

__all__ = ["Memory", "compress"]
