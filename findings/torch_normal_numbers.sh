#!/usr/bin/env bash
# PyTorch 1.13 and 2.6, on the CPU: randn() and rand() of 16 bits draw with the digits of their dtype, not in f32.
# Normal numbers come from uniform ones with 8 binary digits (bf16), of which the least above 0 is 1/256, so no normal
# number lies beyond 3.33, and whatever begins with randn() or normal_() in bf16 has no tails. rand() is 0 in one of 256
# draws.
# Seen, 4 million draws of bf16: the largest normal number is 3.328 (f32: above 5; 0.09 percent of a normal distribution
# lie beyond 3.33), their deviation 0.993; uniform numbers have 256 values, and 0.39 percent are 0, whose logarithm is
# minus infinity. f16 has 2,048 values and 3.904.
# Which numbers come also depends on how many are drawn: the first of 15 is another one than the first of 16, and the
# second of 17 another one than the second of 16, with one seed. So a tensor that grows by an element begins anew.
# Frugal: number i follows from the key and i alone, and is drawn in f32 or f64 and rounded once (core/random/draws.h);
# tests/core/random/draws_test.cpp, "normal numbers are distributed as promised" and "the bits of normal numbers are the
# same everywhere"; tests/core/tensor_test.cpp, "random numbers do not depend on how many are drawn, and those of bf16
# have tails".
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -c '
import torch

for dtype in torch.float32, torch.bfloat16, torch.float16:
    torch.manual_seed(0)
    normal = torch.randn(1 << 22, dtype=dtype).double()
    uniform = torch.rand(1 << 22, dtype=dtype).double()
    values, zeros = len(uniform.unique()), (uniform == 0).double().mean()
    print("%s: largest %.3f, deviation %.3f, uniform: %d values, %.2f percent zeros" % (
        str(dtype)[6:], normal.abs().max(), normal.std(), values, 100 * zeros))
first = {}
for count in 15, 16, 17:
    torch.manual_seed(0)
    first[count] = torch.randn(count)
print("first of 15 and 16:", "equal" if first[15][0] == first[16][0] else "other")
print("second of 16 and 17:", "equal" if first[16][1] == first[17][1] else "other")
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  expect "$suite: f32 has tails" grep -q "^$suite: float32: largest 5\." "$work/out"
  for line in 'bfloat16: largest 3.328, deviation 0.993, uniform: 256 values, 0.39 percent zeros' \
    'first of 15 and 16: other' 'second of 16 and 17: other'; do
    expect "$suite: $line" grep -qxF "$suite: $line" "$work/out"
  done
  expect "$suite: f16 ends at 3.904" grep -q "^$suite: float16: largest 3.904.* 2048 values" "$work/out"
done
done_with_it
