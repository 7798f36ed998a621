#!/usr/bin/env bash
# PyTorch 1.13 and 2.6: what attention makes of padding depends on whether the weights of attention are asked for, and
# on whether a gradient is.
# Seen, TransformerEncoder with src_key_padding_mask: in evaluation under no_grad() padded positions are 0, and in 1.13
# the output is as long as the longest sequence alone; with gradients it has its length, and values there. So a mean
# over all positions is not that of training: it is off by 0.8 here. Other positions are equal.
# MultiheadAttention for a sequence that is all padding: NaN in 1.13. In 2.6 NaN with need_weights=True (the default),
# numbers with False, and NaN with False in evaluation under no_grad().
# Frugal: a query that sees no key gets 0 in training and evaluation: tests/ops/sequence/attention_test.cpp, "attention:
# a row that sees no key gives zeros and takes no gradient". docs/guide/pytorch.md, "What works with it", warns of it.
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -c '
import torch
from torch import nn

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
encoder = nn.TransformerEncoder(layer, 2).eval()
x = torch.randn(2, 6, 16)
padding = torch.tensor([[False] * 4 + [True] * 2, [False] * 3 + [True] * 3])
slow = encoder(x, src_key_padding_mask=padding).detach()
with torch.no_grad():
    fast = encoder(x, src_key_padding_mask=padding)
length = fast.shape[1]
print("length %d of %d" % (length, slow.shape[1]))
print("padded positions", "are 0" if bool((fast[1, 3:] == 0).all()) else "have values", "and",
      "are 0" if bool((slow[1, 3:] == 0).all()) else "have values")
print("others", "equal" if torch.allclose(fast[0, :4], slow[0, :4], atol=1e-5) else "differ")
print("means", "equal" if torch.allclose(fast.mean(1), slow.mean(1), atol=1e-2) else "differ")

attention = nn.MultiheadAttention(16, 2, batch_first=True)
padding[0] = True
for weights in True, False:
    for training, gradients in (True, True), (False, False):
        attention.train(training)
        with torch.set_grad_enabled(gradients):
            y = attention(x, x, x, key_padding_mask=padding, need_weights=weights)[0]
        print("need_weights=%s," % weights, "training:" if training else "evaluation:",
              "NaN" if bool(y[0].isnan().any()) else "numbers")
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  expect "$suite: padded positions are 0 without gradients alone" \
    grep -qx "$suite: padded positions are 0 and have values" "$work/out"
  expect "$suite: others are equal" grep -qx "$suite: others equal" "$work/out"
  expect "$suite: means differ" grep -qx "$suite: means differ" "$work/out"
  case $suite in
    bookworm) length=4 later=NaN ;;
    trixie) length=6 later=numbers ;;
  esac
  expect "$suite: the output has the length $length of 6" grep -qx "$suite: length $length of 6" "$work/out"
  for line in 'True, training: NaN' 'True, evaluation: NaN' "False, training: $later" 'False, evaluation: NaN'; do
    expect "$suite: all padding, $line" grep -qx "$suite: need_weights=$line" "$work/out"
  done
done
done_with_it
