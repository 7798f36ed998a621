#!/usr/bin/env bash
# PyTorch 1.13 and 2.6: a hook for saved tensors gets one memory several times, and in larger shapes than it has: as
# views of one tensor, and as an expanded tensor, whose rows are one number each. PyTorch itself holds that memory once.
# A hook that makes something new of each tensor holds it as often as it is called, and in full size.
# Seen, normalize() of 1,000 x 256 values: it saves the input twice, norms of 1,000 x 1, and these as a matrix of
# 1,000 x 256 with the strides 1, 0. PyTorch holds 1.03 MB. A hook that stores each tensor in half of its bytes holds
# 1.54 MB, which is half more than without it. gather() hands over the expanded index: 2.05 MB that take 8 KB.
# Frugal: frugal.torch packs memory once and keeps expanded tensors as small as they are; tests/python/torch_test.py,
# "test_what_two_ops_save_is_packed_once" and "test_expanded_tensors_count_and_stay_as_small_as_they_are".
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -c '
import torch
from torch.nn.functional import normalize

def storage_of(tensor):
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()

def step(name, f):
    held, halved, shapes = {}, [], []

    def pack(tensor):
        storage = storage_of(tensor)
        held[storage.data_ptr()] = storage.nbytes()
        half = tensor.half() if tensor.is_floating_point() else tensor.int()
        halved.append(storage_of(half).nbytes())
        if 0 in tensor.stride():
            shapes.append("%s %s" % (tuple(tensor.shape), tensor.stride()))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        f()
    print("%s: PyTorch holds %d bytes, a hook that halves %d;" % (name, sum(held.values()), sum(halved)), *shapes)

x = torch.randn(1000, 256, requires_grad=True)
index = torch.arange(1000).remainder(256)[:, None].expand(1000, 256)
step("normalize", lambda: normalize(x))
step("gather", lambda: x.gather(1, index))
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  held() { sed -n "s/^$suite: $1: PyTorch holds \([0-9]*\) bytes.*/\1/p" "$work/out"; }
  halved() { sed -n "s/^$suite: $1:.* halves \([0-9]*\);.*/\1/p" "$work/out"; }
  expect "$suite: normalize holds the input once" [ "$(held normalize)" -le 1036000 ]
  expect "$suite: half the bytes of each tensor are half more" [ "$(halved normalize)" -ge 1536000 ]
  expect "$suite: gather holds the input and a column" [ "$(held gather)" = 1032000 ]
  expect "$suite: half the bytes of both are half more" [ "$(halved gather)" = 1536000 ]
  expect "$suite: both hand over rows of one number" [ "$(grep -c '(1000, 256) (1, 0)' "$work/out")" = 2 ]
done
done_with_it
