#!/usr/bin/env bash
# PyTorch 1.13 and 2.6 keep whole inputs for the backward pass whose values it never reads: of gather, take,
# masked_select, average pools, padding and nll_loss it reads the shape alone. It also keeps the input of a convolution,
# and of a batch norm by running statistics, where their weights are frozen: only the weights' gradients would read it.
# So to freeze convolutions saves no activations (a linear layer keeps none then), and to pick one value of a row by
# gather keeps all of them.
# Seen: with hooks for saved tensors that give back NaN in the place of the input, the gradients have the same bits.
# The bytes kept are those of the input. Not so for layer_norm and clamp, whose gradients read it. mean(dim) keeps its
# input in 1.13 and not in 2.6.
# Frugal: frugal.torch keeps nothing of them (python/frugal/torch/_rules.py); tests/python/torch_test.py,
# "test_inputs_that_are_not_read_take_nothing". Frugal's own networks save what gradients read: docs/design/saving.md.
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -c '
import math

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
start = torch.randn(4, 8, 16, 16)
one = torch.zeros(4, 8, 16, 1, dtype=torch.long)
ops = {
    "gather": lambda x: x.gather(3, one),
    "take": lambda x: x.take(torch.arange(10)),
    "masked_select": lambda x: x.masked_select(start > 0),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "pad": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "nll_loss": lambda x: F.nll_loss(x, torch.zeros(4, 16, 16, dtype=torch.long)),
    "frozen conv2d": nn.Conv2d(8, 8, 3).requires_grad_(False),
    "frozen batch norm": nn.BatchNorm2d(8).eval().requires_grad_(False),
    "mean": lambda x: x.mean(3),
    "layer_norm": lambda x: F.layer_norm(x, (16,)),
    "clamp": lambda x: x.clamp(0),
    "frozen linear": nn.Linear(16, 16).requires_grad_(False),
}

def gradient(f, replaced):
    x = start.clone().requires_grad_()
    kept = []

    def pack(tensor):
        if tensor.data_ptr() != x.data_ptr() or tensor.shape != x.shape:
            return tensor
        kept.append(tensor.numel() * tensor.element_size())
        return torch.full_like(tensor, math.nan) if replaced else tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = f(x)
    y.square().sum().backward()
    return x.grad, sum(kept)

for name, f in ops.items():
    right, kept = gradient(f, False)
    other, _ = gradient(f, True)
    print("%s: input of 32768 bytes, kept %d," % (name, kept), "not read" if torch.equal(right, other) else "read")
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  for name in gather take masked_select avg_pool2d pad nll_loss 'frozen conv2d' 'frozen batch norm'; do
    expect "$suite: it is kept and not read: $name" \
      grep -qx "$suite: $name: input of 32768 bytes, kept 32768, not read" "$work/out"
  done
  for name in layer_norm clamp; do
    expect "$suite: it is read: $name" grep -qx "$suite: $name: input of 32768 bytes, kept 32768, read" "$work/out"
  done
  expect "$suite: a frozen linear layer keeps none" grep -q "$suite: frozen linear: .* kept 0, not read" "$work/out"
done
expect "2.6: mean keeps none" grep -q "trixie: mean: .* kept 0, not read" "$work/out"
done_with_it
