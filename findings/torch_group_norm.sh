#!/usr/bin/env bash
# PyTorch 1.13 and 2.6: group_norm on the CPU takes the variance as mean(x^2) - mean(x)^2, in f32, where the tensor is
# in the memory format channels_last, and as the mean of (x - mean)^2 where it is not. So a call that is said to change
# the order of elements alone changes the results, and where the mean is large it makes them wrong.
# Seen, [2, 32, 16, 16], 8 groups, values of deviation 1 around a mean, against f64: with the mean 100 outputs are off
# by 0.02 (contiguous: 0.00001), with 1000 by 0.9, with 4000 by more than 100 (contiguous: 0.0004). batch_norm is right
# in both formats.
# Frugal: ops/image/group_norm.cpp (measure) takes the mean away first, and channels are always last;
# tests/ops/image/group_norm_test.cpp, "group_norm: a large mean costs no digits of the variance".
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -c '
import torch
from torch.nn.functional import batch_norm, group_norm

norms = {"group_norm": lambda x: group_norm(x, 8), "batch_norm": lambda x: batch_norm(x, None, None, training=True)}
torch.manual_seed(0)
values = torch.randn(2, 32, 16, 16)
for name, norm in norms.items():
    for mean in 0, 100, 1000, 4000:
        x = values + mean
        right = norm(x.double())
        for form in torch.contiguous_format, torch.channels_last:
            off = float((norm(x.contiguous(memory_format=form)) - right).abs().max())
            size = "small" if off < 0.005 else "seen" if off < 0.5 else "large"
            print("%s, mean %d, %s: off by %.2g, %s" % (name, mean, str(form)[6:], off, size))
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  expect "$suite: contiguous tensors are right" [ "$(grep -c 'contiguous_format: .* small$' "$work/out")" = 8 ]
  expect "$suite: batch_norm is right in both formats" [ "$(grep -c 'batch_norm, .* small$' "$work/out")" = 8 ]
  expect "$suite: channels_last is right without a mean" \
    grep -q 'group_norm, mean 0, channels_last: .* small$' "$work/out"
  expect "$suite: it is off with the mean 100" grep -q 'group_norm, mean 100, channels_last: .* seen$' "$work/out"
  expect "$suite: it is wrong with larger ones" \
    [ "$(grep -c 'group_norm, .* channels_last: .* large$' "$work/out")" = 2 ]
done
done_with_it
