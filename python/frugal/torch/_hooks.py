"""Whose hooks for saved tensors are the innermost ones, which alone see what an op saves.

PyTorch 1.13 does not say it. So the functions by which all hooks come and go count those of others.
"""

import functools
import threading
from typing import Any, List

import torch

_autograd = torch._C._autograd
push_own = _autograd._push_saved_tensors_default_hooks
pop_own = _autograd._pop_saved_tensors_default_hooks


class _Here(threading.local):
    """What a thread has."""

    def __init__(self) -> None:
        self.others = 0  # pairs of hooks that others have begun and not ended
        self.contexts: List[Any] = []  # the contexts with hooks, the innermost last


here = _Here()


# An interrupt may come between two steps. Then fewer are counted than there are, never more: a context that waits
# for the save of an output and gets none is right again with the next op.
@functools.wraps(push_own)
def _push(*hooks: Any) -> None:
    push_own(*hooks)
    here.others += 1


@functools.wraps(pop_own)
def _pop() -> None:
    here.others -= 1
    pop_own()


_autograd._push_saved_tensors_default_hooks = _push
_autograd._pop_saved_tensors_default_hooks = _pop
