#!/usr/bin/env bash
# PyTorch 1.13 and 2.6: a batch norm in torch.utils.checkpoint moves its running statistics twice in each step, once in
# the forward pass and once when the block is computed again. The gradient is right, so training looks as without
# checkpoints, and evaluation is that of another momentum: 0.19 for 0.1.
# Seen, one step with the mean 10: running_mean is 1.0 without and 1.9 with a checkpoint, of the reentrant kind and of
# the other; num_batches_tracked is 1 and 2. Statistics of small batches then vary twice as much. spectral_norm turns
# its vector twice, too.
# Frugal: layers ask whether they are recomputed (autograd/checkpoint.h); tests/autograd/engine_test.cpp, "a checkpoint
# keeps its inputs only, through the policy, and counts running statistics once".
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -c '
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0)) + 10
for name, run in {
    "without": lambda layer, x: layer(x),
    "reentrant": lambda layer, x: checkpoint(layer, x, use_reentrant=True),
    "not reentrant": lambda layer, x: checkpoint(layer, x, use_reentrant=False),
}.items():
    norm = nn.BatchNorm1d(4)
    run(norm, x.clone().requires_grad_()).sum().backward()
    torch.manual_seed(0)
    spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
    once = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
    once.load_state_dict(spectral.state_dict())
    once(x)
    run(spectral, x.clone().requires_grad_()).sum().backward()
    vectors = [layer.parametrizations.weight[0]._u for layer in (spectral, once)]
    turned = "once" if torch.equal(*vectors) else "more"
    print("%s: mean %.1f, batches %d, vector turned %s" % (
        name, norm.running_mean.mean(), norm.num_batches_tracked, turned))
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  for line in 'without: mean 1.0, batches 1, vector turned once' 'reentrant: mean 1.9, batches 2, vector turned more' \
    'not reentrant: mean 1.9, batches 2, vector turned more'; do
    expect "$suite: $line" grep -qxF "$suite: $line" "$work/out"
  done
done
done_with_it
