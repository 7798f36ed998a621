#!/usr/bin/env bash
# PyTorch 1.13 and 2.6: torch.utils.checkpoint puts back the random state of the program's own generator for the
# recomputation, and that of no other one. A block that draws from a torch.Generator of its own, or from Python's or
# numpy's, as stochastic depth and masks often do, is computed again with other draws: the gradient is that of another
# function, without an error or a warning.
# Seen, a mask of 1,000 elements that a generator draws: the output has one mask and the gradient another one, in 1.13
# and 2.6, for the reentrant kind and the other one. 0.5 of the elements differ. Draws of the program's generator are
# equal.
# Frugal: draws follow from the key and the element (core/random/draws.h), so recomputing draws what was drawn;
# tests/autograd/engine_test.cpp, "checkpoints: parameters inside, dropout's stream, nesting, and inputs that need no
# gradient". docs/guide/pytorch.md, "What works with it", warns of it.
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -W ignore -c '
import random
import torch
from torch.utils.checkpoint import checkpoint

own = torch.Generator().manual_seed(0)
ways = {
    "the program": lambda n: torch.bernoulli(torch.full((n,), 0.5)),
    "a generator": lambda n: torch.bernoulli(torch.full((n,), 0.5), generator=own),
    "Python": lambda n: torch.tensor([float(random.random() < 0.5) for _ in range(n)]),
}
for name, draw in ways.items():
    for reentrant in True, False:
        x = torch.ones(1000, requires_grad=True)
        y = checkpoint(lambda x: x * draw(1000), x, use_reentrant=reentrant)
        y.sum().backward()
        print("%s, reentrant %s: %.1f differ" % (name, reentrant, (x.grad != y).float().mean()))
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  for reentrant in True False; do
    expect "$suite, reentrant $reentrant: the program" \
      grep -qx "$suite: the program, reentrant $reentrant: 0.0 differ" "$work/out"
    for name in 'a generator' Python; do
      expect "$suite, reentrant $reentrant: $name" \
        grep -qx "$suite: $name, reentrant $reentrant: 0.5 differ" "$work/out"
    done
  done
done
done_with_it
