#!/usr/bin/env bash
# PyTorch 2.6, scaled_dot_product_attention() on the CPU: where a mask adds the least finite float to all keys of a
# query, as many programs hide padding, the output is the mean of the values, and the gradient is that of their sum: it
# is as many times too large as there are keys. The kernel keeps the logarithm of the row's sum of exponentials, and
# -3.4e38 + log(keys) rounds to -3.4e38.
# Seen, the gradient of the values of a row with 4, 64 and 512 keys: 4, 64 and 512 times that of the kernel MATH. It is
# so with the kernel that is chosen without asking. With minus infinity, or a mask of booleans, the row is 0 and has no
# gradient. Large scores lose digits, too: at 1e6 the gradient is off by more than 1 percent, and the output is right.
# Frugal: such rows take their sums again (ops/sequence/attention.h, is_coarse);
# tests/ops/sequence/attention_test.cpp, "attention: a row whose keys all get the least float is a mean, in its
# gradient, too". docs/guide/pytorch.md, "What works with it", warns of it.
. "$(dirname "$0")/packages.sh"
packages trixie 'python3-torch=2.6.0*'
python_in trixie -W ignore -c '
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

def gradient(mask, keys, kernels, scale=1.0):
    generator = torch.Generator().manual_seed(0)
    draw = lambda rows: torch.randn(1, 1, rows, 8, generator=generator)
    q, k, v = draw(1), draw(keys), draw(keys)
    q, k, v = (scale * q).requires_grad_(), k.requires_grad_(), v.requires_grad_()
    with sdpa_kernel(kernels):
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    y.sum().backward()
    return y.detach(), v.grad

every = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
for keys in 4, 64, 512:
    mask = torch.full((1, keys), torch.finfo(torch.float32).min)
    right = gradient(mask, keys, [SDPBackend.MATH])
    for name, kernels in ("flash", [SDPBackend.FLASH_ATTENTION]), ("the choice", every):
        found = gradient(mask, keys, kernels)
        print("least float, %s, %d keys: output off by %.0e, gradient times %.2f"
              % (name, keys, (found[0] - right[0]).abs().max(), found[1].norm() / right[1].norm()))
hidden = torch.zeros(1, 64, dtype=torch.bool)
for name, mask in ("booleans", hidden), ("minus infinity", torch.full((1, 64), -torch.inf)):
    for kernel in SDPBackend.FLASH_ATTENTION, SDPBackend.MATH:
        y, dv = gradient(mask, 64, [kernel])
        print("%s, %s: output %g, gradient %g" % (name, kernel.name, y.norm(), dv.norm()))
mask = torch.full((1, 64), 1e6)
right, found = gradient(mask, 64, [SDPBackend.MATH]), gradient(mask, 64, [SDPBackend.FLASH_ATTENTION])
print("scores near 1e6: output off by %.0e, gradient times %.3f"
      % ((found[0] - right[0]).abs().max(), found[1].norm() / right[1].norm()))
' 2>/dev/null | tee "$work/out"
for keys in 4 64 512; do
  for name in flash 'the choice'; do
    expect "$name, $keys keys" grep -q "^least float, $name, $keys keys: .*, gradient times $keys.00" "$work/out"
  done
done
expect "outputs are right" [ "$(grep -cE '^least float.*output off by (0e.00|[0-9]e-0[6-9])' "$work/out")" = 6 ]
expect "scores near 1e6 lose digits" grep -qE 'scores near 1e6: .*times (1.0[1-9]|0.9[0-8])' "$work/out"
expect "hidden rows are 0" [ "$(grep -c 'output 0, gradient 0' "$work/out")" = 4 ]
done_with_it
