#!/usr/bin/env bash
# PyTorch 1.13 and 2.6: torch.set_flush_denormal(True) sets a register of the thread that calls it. Threads that OpenMP
# has started before go on with subnormal numbers. So one tensor is computed by two rules, and what comes out depends on
# the number of threads, on whether anything large was computed before the call, and on the size of the tensor.
# Seen, two threads, 2^20 elements of 1e-39 times 1: after a large op and then the call, the half of the calling thread
# is 0 and the other half is 1e-39. Where the call comes first, all are 0: new threads inherit the register. A tensor of
# 100 elements is 0 in both cases.
# Frugal: nothing of ours changes that register; docs/guide/pytorch.md, "What works with it", says to call it first.
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  for order in before after; do
    python_in "$suite" -c '
import sys

import numpy
import torch

torch.set_num_threads(2)
few, many = (torch.from_numpy(numpy.full(n, 1e-39, numpy.float32)) for n in (100, 1 << 20))
if sys.argv[1] == "after":
    torch.ones(1 << 20).mul(2)
assert torch.set_flush_denormal(True)
few, many = few * 1, many * 1
few, many = (x.numpy().view(numpy.int32) for x in (few, many))  # the bits: to compare numbers would flush them, too
words = ["zeros" if (part == 0).all() else "numbers" if (part != 0).all() else "both"
         for part in (*many.reshape(2, -1), few)]
print("the call %s a large op: %s, %s; few elements: %s" % (sys.argv[1], *words))
' "$order" 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
    case $order in
      before) seen='zeros, zeros' ;;
      after) seen='zeros, numbers' ;;
    esac
    expect "$suite: $order a large op" \
      grep -qx "$suite: the call $order a large op: $seen; few elements: zeros" "$work/out"
  done
done
done_with_it
