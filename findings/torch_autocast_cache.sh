#!/usr/bin/env bash
# PyTorch 1.13 and 2.6: autocast keeps the weights that it has cast until its block ends, also those that it cast under
# no_grad(). A layer that runs there first gets no gradient afterwards, without a word.
# Seen: two layers, of which the first ran under no_grad() in the same block: after backward() its weight has no
# gradient and the second's has one. With cache_enabled=False both have. The reentrant kind of torch.utils.checkpoint
# runs its block under no_grad(), so a layer that is in a checkpoint and outside of it, too, loses a part of its
# gradient: 0.53 of it is off here.
# Frugal: docs/guide/pytorch.md, "What works with it"; tests/python/torch_test.py, "test_autocast_without_cache".
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -c '
import torch
from torch.utils.checkpoint import checkpoint

x = torch.ones(4, 8)
for cached in (True, False):
    torch.manual_seed(0)
    first, second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=cached):
        with torch.no_grad():
            first(x)
        loss = second(first(x)).float().pow(2).sum()
    loss.backward()
    has = ["none" if layer.weight.grad is None else "gradient" for layer in (first, second)]
    print("cached" if cached else "uncached", *has)

def gradient(cached, checkpointed):
    first.zero_grad(set_to_none=True)
    start = x.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=cached):
        y = checkpoint(first, start, use_reentrant=True) if checkpointed else first(start)
        loss = first(y).float().pow(2).sum()
    loss.backward()
    return first.weight.grad

for cached in (True, False):
    plain, found = gradient(cached, False), gradient(cached, True)
    off = float((plain - found).norm() / plain.norm())
    print("shared,", "cached" if cached else "uncached", "off by %.2f:" % off, "far" if off > 0.2 else "near")
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  expect "$suite: the layer that ran under no_grad() has no gradient" \
    grep -qx "$suite: cached none gradient" "$work/out"
  expect "$suite: without the cache both have" grep -qx "$suite: uncached gradient gradient" "$work/out"
  expect "$suite: a layer in a checkpoint and outside of it is far off" grep -q "shared, cached .* far" "$work/out"
  expect "$suite: without the cache it is near" grep -q "shared, uncached .* near" "$work/out"
done
done_with_it
