#!/usr/bin/env bash
# PyTorch 1.13 and 2.6: cross_entropy() of class indices and of the same classes as rows of shares, which mixup and soft
# labels need, is not one function. What was tuned with the one trains at another rate, or not at all, with the other.
# Seen: with weights of classes, indices divide by the sum of the weights and shares by the number of rows: 0.711 and
# 0.758 for one batch. A row that ignore_index leaves out does not count; a row of zeros counts as a row: 1.168 and
# 0.974. A class that is masked with a logit of minus infinity, and has no share, adds nothing with indices (0.313), and
# 0 times infinity = NaN with shares. The gradient of that NaN is finite and right, so training goes on; only what reads
# the loss (early stopping, a guard, a schedule by the loss) sees NaN.
# Frugal: a share of 0 adds nothing, and rows of shares can be left out (ops/loss/soft_cross_entropy.h); with data.mixup
# train.class_weights is an error; tests/ops/loss/soft_cross_entropy_test.cpp, "soft_cross_entropy: an infinite
# logit without a share adds nothing, NaN shows" and "a share of 1 is the class of cross_entropy, smoothed alike".
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -c '
import torch
from torch.nn import functional as F

torch.manual_seed(0)
logits = torch.randn(6, 3)
classes = torch.tensor([0, 0, 0, 0, 1, 2])
shares = F.one_hot(classes, 3).float()
weights = torch.tensor([0.1, 1.0, 5.0])
print("plain %.3f %.3f" % (F.cross_entropy(logits, classes), F.cross_entropy(logits, shares)))
print("weights %.3f %.3f" % (F.cross_entropy(logits, classes, weights), F.cross_entropy(logits, shares, weights)))
classes[0], shares[0] = -100, 0
print("ignored %.3f %.3f" % (F.cross_entropy(logits, classes), F.cross_entropy(logits, shares)))
for name, target in ("indices", torch.tensor([1])), ("shares", torch.tensor([[0.0, 1.0, 0.0]])):
    x = torch.tensor([[1.0, 2.0, -float("inf")]], requires_grad=True)
    loss = F.cross_entropy(x, target)
    loss.backward()
    print("masked, %s: %.3f, gradient" % (name, loss), *("%.3f" % g for g in x.grad[0].tolist()))
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  for line in 'plain 1.307 1.307' 'weights 0.711 0.758' 'masked, indices: 0.313, gradient 0.269 -0.269 0.000' \
    'masked, shares: nan, gradient 0.269 -0.269 0.000' 'ignored 1.168 0.974'; do
    expect "$suite: $line" grep -qxF "$suite: $line" "$work/out"
  done
done
done_with_it
