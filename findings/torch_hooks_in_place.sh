#!/usr/bin/env bash
# PyTorch 1.13 and 2.6: a hook for saved tensors turns off the check that a saved tensor has not been written since.
# With hooks that give back what they get, code that raises an error without them trains with a wrong gradient.
# Seen: y = exp(x), then y.mul_(2); the gradient of y at x = 1 is 2 e = 5.44. Without hooks backward() raises "modified
# by an inplace operation"; with hooks that change nothing it is 10.87. A product's other factor that is set to 0
# afterwards gives the gradient 0. A hook that copies gives 5.44: so whether a hook copies decides the gradient, and one
# that is there to count bytes, or that leaves small tensors alone, hides the mistake.
# Frugal: frugal.torch keeps the number of writes of what stays whole and checks it; tests/python/torch_test.py,
# "test_in_place_writes_are_noticed". Frugal's own entries are checked, too: ARCHITECTURE.md, "Saving and packing".
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -c '
import contextlib
import torch
from torch.autograd.graph import saved_tensors_hooks

def of_output(x):
    y = x.exp()
    y.mul_(2)
    return y.sum()

def of_factor(x):
    factor = torch.ones(3)
    y = (x * factor).sum()
    factor.zero_()
    return y

same = lambda tensor: tensor
for name, f in ("output", of_output), ("factor", of_factor):
    for hooks, context in {
        "no hooks": contextlib.nullcontext(),
        "hooks that change nothing": saved_tensors_hooks(same, same),
        "hooks that copy": saved_tensors_hooks(lambda tensor: tensor.clone(), same),
    }.items():
        x = torch.ones(3, requires_grad=True)
        try:
            with context:
                y = f(x)
            y.backward()
            print("%s, %s: %.2f" % (name, hooks, x.grad[0]))
        except RuntimeError as error:
            print("%s, %s: %s" % (name, hooks, "error" if "inplace operation" in str(error) else error))
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  for line in 'output, no hooks: error' 'output, hooks that change nothing: 10.87' 'output, hooks that copy: 5.44' \
    'factor, no hooks: error' 'factor, hooks that change nothing: 0.00' 'factor, hooks that copy: 1.00'; do
    expect "$suite: $line" grep -qxF "$suite: $line" "$work/out"
  done
done
done_with_it
