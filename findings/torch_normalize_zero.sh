#!/usr/bin/env bash
# PyTorch 1.13 and 2.6: the gradient of normalize() at a row of zeros is the incoming one times 1e12, since the row is
# divided by max(norm, 1e-12); cosine_similarity() multiplies by 1e8. The output is 0 and the loss is as usual. Rows of
# zeros are common: behind a relu, for an isolated node, for padding.
# Seen, a contrastive loss of 16 rows, one of them 0: its gradient has the norm 1e12, the others have norms around 1.
# clip_grad_norm_() then leaves less than 1e-11 of the others. layer_norm, which adds 1e-5 to the variance, multiplies
# by hundreds.
# Frugal: a row of zeros has no direction and gets no gradient (autograd/functions/contrastive.cpp);
# tests/autograd/contrastive_test.cpp, "a row of zeros has cosine 0 and no gradient".
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -c '
import math

import torch
from torch.nn import functional as F

ops = {
    "normalize": lambda x: F.normalize(x, dim=1),
    "cosine_similarity": lambda x: F.cosine_similarity(x, torch.tensor([[1.0, 0.0]])),
    "layer_norm": lambda x: F.layer_norm(x, (2,)),
}
for name, op in ops.items():
    x = torch.zeros(1, 2, requires_grad=True)
    y = op(x)
    y.flatten()[0].backward()
    print("%s: output %g, gradient times 10^%d" % (name, y.flatten()[0], round(math.log10(x.grad.abs().max()))))

torch.manual_seed(0)
x = torch.randn(16, 8)
x[0] = 0
x.requires_grad_()
unit = F.normalize(x, dim=1)
loss = F.cross_entropy(unit @ unit.T / 0.1 - 1e9 * torch.eye(16), torch.arange(16) ^ 1)
loss.backward()

def say(when):
    norms = x.grad.norm(dim=1)
    print("%s: the row of zeros 10^%d, others at most 10^%d" %
          (when, round(math.log10(norms[0])), round(math.log10(norms[1:].max()))))

print("loss", "finite" if bool(loss.isfinite()) else "not finite")
say("gradient")
torch.nn.utils.clip_grad_norm_([x], 1.0)
say("clipped")
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  for line in 'normalize: output 0, gradient times 10^12' 'cosine_similarity: output 0, gradient times 10^8' \
    'loss finite' 'gradient: the row of zeros 10^12, others at most 10^0' \
    'clipped: the row of zeros 10^0, others at most 10^-12'; do
    expect "$suite: $line" grep -qxF "$suite: $line" "$work/out"
  done
done
done_with_it
