#!/usr/bin/env bash
# PyTorch 1.13, the one of Debian 12: masked_scatter_() of a transposed tensor puts the values into the order of its
# memory, not into that of its elements, and so does the gradient of masked_select(). Nothing says so: the values are
# right, and in wrong places. Batches whose first axis was moved, such as the frames of recordings that are selected by
# their lengths, meet it. PyTorch 2.6 is right (issue 99638 of pytorch/pytorch, mended in 2.1). Indexing with the mask,
# `x[mask]`, is right in both.
# Seen, x [4, 3] transposed, a mask of six elements and the gradient 1, 2, ... 6 of what it selects: the gradient of x
# is 1, 5, 3, 2, 4, 6 there with 1.13, and 1, 2, 3, 4, 5, 6 with 2.6.
# Frugal: `frugal.torch` leaves that operation to PyTorch, so docs/guide/pytorch.md names it.
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -c '
import torch

mask = torch.tensor([[1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=torch.bool)
weights = torch.arange(1.0, 7.0)


def gradient(x, select):
    (select(x) * weights).sum().backward()
    return [int(value) for value in x.grad[mask]]


def transposed():
    return torch.zeros(3, 4).t().detach().requires_grad_()


print("masked_select", gradient(transposed(), lambda x: x.masked_select(mask)))
print("contiguous", gradient(torch.zeros(4, 3, requires_grad=True), lambda x: x.masked_select(mask)))
print("indexing", gradient(transposed(), lambda x: x[mask]))
print("masked_scatter_", [int(value) for value in torch.zeros(3, 4).t().masked_scatter_(mask, weights)[mask]])
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  wrong="[1, 2, 3, 4, 5, 6]"
  [ "$suite" = trixie ] || wrong="[1, 5, 3, 2, 4, 6]"
  expect "$suite: masked_select" grep -qxF "$suite: masked_select $wrong" "$work/out"
  expect "$suite: masked_scatter_" grep -qxF "$suite: masked_scatter_ $wrong" "$work/out"
  expect "$suite: contiguous" grep -qxF "$suite: contiguous [1, 2, 3, 4, 5, 6]" "$work/out"
  expect "$suite: indexing" grep -qxF "$suite: indexing [1, 2, 3, 4, 5, 6]" "$work/out"
done
done_with_it
