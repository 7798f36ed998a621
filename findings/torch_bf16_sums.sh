#!/usr/bin/env bash
# PyTorch 1.13 and 2.6 add some gradients of bf16 in bf16 on the CPU. Such a sum of ones stops at 256, because 256 + 1
# rounds to 256: the gradient of what is used often is too small, without a word.
# Seen, where the sum of 1,000 ones (exact in bf16: 1,000) is asked for: 256 for a row of an embedding that occurs 1,000
# times, of weight[ids], of embedding_bag (2.6; 1.13 has none of bf16), and for an average pool that spreads one value.
# The bias of layer_norm gets 256 times the number of threads. Right are sums, expand, the biases of linear layers and
# convolutions. index_select, gather and index_add give 256 in 1.13 and the right sum in 2.6.
# With a training in pure bf16, frequent tokens learn too slowly. Autocast keeps the weights, and so these sums, in f32.
# Frugal: gradients of parameters are f32 with precision=bf16 (docs/guide/bf16.md), and all sums over bf16 are taken in
# f32; tests/ops/sequence/embedding_test.cpp, "embedding: a gradient of bf16 is summed in f32".
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -c '
import torch
from torch.nn.functional import adaptive_avg_pool2d, conv2d, embedding, embedding_bag, layer_norm, linear

torch.set_num_threads(1)
ids = torch.zeros(1000, dtype=torch.long)

def ones(*shape):
    return torch.ones(shape, dtype=torch.bfloat16)

sums = {
    "embedding": ((4, 8), lambda w: embedding(ids, w)),
    "weight[ids]": ((4, 8), lambda w: w[ids]),
    "embedding_bag": ((4, 8), lambda w: embedding_bag(ids, w, ids[:1], mode="sum")),
    "adaptive_avg_pool2d": ((1, 4, 1, 1), lambda w: adaptive_avg_pool2d(w, (25, 40))),
    "bias of layer_norm": ((8,), lambda w: layer_norm(ones(1000, 8), (8,), None, w)),
    "index_select": ((4, 8), lambda w: w.index_select(0, ids)),
    "expand": ((8,), lambda w: w.expand(1000, 8)),
    "bias of linear": ((8,), lambda w: linear(ones(1000, 8), ones(8, 8), w)),
    "bias of conv2d": ((8,), lambda w: conv2d(ones(1, 8, 25, 40), ones(8, 8, 1, 1), w)),
}
for name, (shape, f) in sums.items():
    w = ones(*shape).requires_grad_()
    try:
        f(w).sum().backward()
        print(name, int(w.grad.flatten()[0]))
    except RuntimeError:
        print(name, "error")
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  for name in embedding 'weight\[ids\]' adaptive_avg_pool2d 'bias of layer_norm'; do
    expect "$suite: the sum stops at 256: $name" grep -qx "$suite: $name 256" "$work/out"
  done
  for name in expand 'bias of linear' 'bias of conv2d'; do
    expect "$suite: the sum is right: $name" grep -qx "$suite: $name 1000" "$work/out"
  done
done
expect "2.6: embedding_bag stops, index_select is right" \
  [ "$(grep -cx -e 'trixie: embedding_bag 256' -e 'trixie: index_select 1000' "$work/out")" = 2 ]
done_with_it
