#!/usr/bin/env bash
# PyTorch 1.13 and 2.6 negate the imaginary part of a conjugate only when it is read: the tensor has a negative bit.
# DLPack hands out the memory without a word of that, so other libraries get the numbers with the wrong sign.
# Tensor.numpy() raises an error there, and a tensor that is still complex raises one with DLPack, too.
# Seen: torch.complex(1, 1).conj().imag is -1, and numpy.from_dlpack() of it 1.
# Frugal: frugal.tensor() makes a copy, and the rest raises BufferError: python/frugal/_tensor.py and
# python/module/tensors.cpp; tests/python/torch_test.py, "test_negative_bit".
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -c '
import numpy
import torch

def said(make):
    try:
        return make()
    except Exception as error:
        return type(error).__name__

one = torch.ones(2)
number = torch.complex(one, one).conj()
part = number.imag
print("torch", part.tolist())
print("dlpack", numpy.from_dlpack(part).tolist())
print("numpy", said(part.numpy))
print("complex", said(lambda: numpy.from_dlpack(number)))
print("resolved", numpy.from_dlpack(part.resolve_neg()).tolist())' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  expect "$suite: the tensor is -1" grep -qxF "$suite: torch [-1.0, -1.0]" "$work/out"
  expect "$suite: DLPack gives 1" grep -qxF "$suite: dlpack [1.0, 1.0]" "$work/out"
  expect "$suite: numpy() and DLPack of the complex tensor are errors" \
    [ "$(grep -cxE "$suite: (numpy|complex) [A-Za-z]*Error" "$work/out")" -eq 2 ]
  expect "$suite: resolve_neg() helps" grep -qxF "$suite: resolved [-1.0, -1.0]" "$work/out"
done
done_with_it
