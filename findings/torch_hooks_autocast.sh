#!/usr/bin/env bash
# PyTorch 1.13 and 2.6: a hook that packs saved tensors (saved_tensors_hooks) runs under the autocast of the forward
# pass where the op that saves is one that autocast leaves alone, and without it where autocast has cast its inputs.
# The hook that unpacks runs without autocast, if backward() is called outside of its block, as the manual asks.
# Seen, on the CPU with bf16: a product of two f32 matrices in the hook that packs is bf16 for what relu, gelu,
# layer_norm, softmax and mul save, and f32 for what linear, conv2d and matmul save. Unpacking computes it in f32. So a
# hook that projects to a lower rank works in 8 or 24 binary digits, by the op that saves, and cannot tell.
# Frugal: frugal.torch packs in C++ (python/module), which autocast does not reach; tests/python/torch_test.py,
# "test_autocast". docs/guide/pytorch.md says so for other hooks.
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -c '
import torch
from torch.nn import functional as F

square = torch.ones(8, 8)
weight = torch.ones(8, 8, requires_grad=True)
window = torch.ones(8, 8, 1, 1, requires_grad=True)
ops = {
    "relu": F.relu,
    "gelu": F.gelu,
    "layer_norm": lambda x: F.layer_norm(x, (8,)),
    "softmax": lambda x: F.softmax(x, -1),
    "mul": lambda x: x * weight[0],
    "linear": lambda x: F.linear(x, weight),
    "conv2d": lambda x: F.conv2d(x, window),
    "matmul": lambda x: x @ weight,
}
for name, op in ops.items():
    packing, unpacking = set(), set()

    def pack(tensor):
        packing.add(str((square @ square).dtype)[6:])
        return tensor

    def unpack(tensor):
        unpacking.add(str((square @ square).dtype)[6:])
        return tensor

    x = torch.randn(4, 8, 8, 8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = op(x)
        y.float().sum().backward()
    print("%s: packing in %s, unpacking in %s" % (name, "/".join(sorted(packing)), "/".join(sorted(unpacking))))
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  for op in relu gelu layer_norm softmax mul; do
    expect "$suite: $op" grep -qx "$suite: $op: packing in bfloat16, unpacking in float32" "$work/out"
  done
  for op in linear conv2d matmul; do
    expect "$suite: $op" grep -qx "$suite: $op: packing in float32, unpacking in float32" "$work/out"
  done
done
done_with_it
