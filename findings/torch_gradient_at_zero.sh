#!/usr/bin/env bash
# PyTorch 1.13 and 2.6: functions that are equal have other gradients where two of their pieces meet. Values lie there
# often: zeros behind a relu, of padding and of a bias that begins as 0, and what a clamp before has cut off.
# Seen at x = 0: the gradient is 0 for relu(x), 1 for x.clamp(min=0) and 0.5 for maximum(x, 0). At 0 and 6, relu6 and
# hardtanh(x, 0, 6) have 0, x.clamp(0, 6) has 1. hardswish has -0.5 at -3 and 1.5 at 3, where its slope begins and ends.
# For three equal values, max() and amax() give each a third, max(dim) and max_pool1d give all to the first, and sort()
# gives all to the last.
# So a unit that is exactly 0 learns where relu is written as clamp, and does not where it is written as relu: the loss
# is equal and the gradient is not. Whoever keeps a bit instead of the input must know on which side the end counts.
# Frugal: relu has 0 there, and clamp 1, as PyTorch's (ops/dense/bitmask.h). frugal.torch keeps a bit for clamp and
# hardtanh, which says what PyTorch's own function says at their ends: tests/python/torch_test.py,
# "test_ends_of_clamp_and_hardtanh".
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -c '
import torch
from torch.nn import functional as F

zero = torch.zeros(1)

def show(name, f, *places):
    x = torch.tensor(places, requires_grad=True)
    f(x).sum().backward()
    print(name, *("%.3g" % g for g in x.grad.tolist()))

show("relu", F.relu, 0.0)
show("clamp(min=0)", lambda x: x.clamp(min=0), 0.0)
show("maximum", lambda x: torch.maximum(x, zero), 0.0)
show("relu6", F.relu6, 0.0, 6.0)
show("hardtanh(0, 6)", lambda x: F.hardtanh(x, 0, 6), 0.0, 6.0)
show("clamp(0, 6)", lambda x: x.clamp(0, 6), 0.0, 6.0)
show("hardswish", F.hardswish, -3.0, 3.0)
show("max()", lambda x: x.max(), 1.0, 1.0, 1.0)
show("amax()", lambda x: x.amax(), 1.0, 1.0, 1.0)
show("max(dim)", lambda x: x.max(0).values, 1.0, 1.0, 1.0)
show("max_pool1d", lambda x: F.max_pool1d(x[None], 3), 1.0, 1.0, 1.0)
show("sort", lambda x: x.sort().values[-1], 1.0, 1.0, 1.0)
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  for line in 'relu 0' 'clamp(min=0) 1' 'maximum 0.5' 'relu6 0 0' 'hardtanh(0, 6) 0 0' 'clamp(0, 6) 1 1' \
    'hardswish -0.5 1.5' 'max() 0.333 0.333 0.333' 'amax() 0.333 0.333 0.333' \
    'max(dim) 1 0 0' 'max_pool1d 1 0 0' 'sort 0 0 1'; do
    expect "$suite: $line" grep -qxF "$suite: $line" "$work/out"
  done
done
done_with_it
