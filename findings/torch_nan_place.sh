#!/usr/bin/env bash
# PyTorch 1.13 and 2.6, on the CPU: what the backward pass of an activation makes of NaN depends on the place of the
# element. Whole vectors of a tensor are computed by comparisons that are false for NaN, and the last few elements by
# comparisons the other way round.
# Seen, 67 elements of NaN with the gradient 1. relu6, hardtanh, hardshrink and softshrink give 0 for the first 64 and 1
# for the last 3. elu, selu, celu and hardswish give NaN first and 1 in the end. One element alone has 1. So whether a
# network whose values are NaN gets gradients that are NaN depends on the shapes of its layers; what looks for NaN in
# gradients, as GradScaler does, may see none. relu gives 1 everywhere, gelu and silu NaN.
# Frugal: tests/ops/dense/elementwise_test.cpp, "unary: NaN has one gradient, whole vectors and the rest alike". A run
# whose loss is not finite stops and names the tensor (docs/guide/troubleshooting.md).
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -W ignore -c '
import torch
import torch.nn.functional as F

for name in "relu6", "hardtanh", "hardshrink", "softshrink", "elu", "selu", "celu", "hardswish", "relu", "gelu", "silu":
    found = []
    for elements in 67, 1:
        x = torch.full((elements,), float("nan"), requires_grad=True)
        getattr(F, name)(x).sum().backward()
        found.append(x.grad)
    print("%s: first %.2f, last %.2f, alone %.2f" % (name, found[0][0], found[0][-1], found[1][0]))
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  for name in relu6 hardtanh hardshrink softshrink; do
    expect "$suite: $name" grep -qx "$suite: $name: first 0.00, last 1.00, alone 1.00" "$work/out"
  done
  for name in elu celu hardswish; do
    expect "$suite: $name" grep -qE "$suite: $name: first nan, last 1.00, alone 1.00" "$work/out"
  done
  expect "$suite: relu" grep -qx "$suite: relu: first 1.00, last 1.00, alone 1.00" "$work/out"
  for name in gelu silu; do
    expect "$suite: $name" grep -qx "$suite: $name: first nan, last nan, alone nan" "$work/out"
  done
done
done_with_it
