#!/usr/bin/env bash
# PyTorch 1.13 and 2.6: Adam keeps its averages in the dtype of the parameters. In bf16 the second moment times 0.999
# rounds to what it was, because neighbours lie 0.4 to 0.8 percent apart. So it never falls: the largest gradient that a
# weight has ever had decides its rate from then on, without a word. The loop, foreach and fused forms are alike.
# Seen, one gradient of 100 and then 5,000 of 1: the second moment is 10 after the first step, 1.06 in the end in f32
# and 10 in bf16. After 5,000 gradients of 1 from the beginning it is 0.993 in f32 and stops at 0.5 in bf16. RMSprop
# with alpha=0.999 is alike. An average of weights (AveragedModel) with a decay of 0.999 stops half way: 0.5 instead of
# 0.993.
# Frugal: parameters, averages and the optimizer's state are f32 with precision=bf16 (docs/guide/bf16.md). Adam in 8
# bits rounds its second moment at random; tests/optim/adam8bit_test.cpp, "8-bit AdamW: a second moment falls where one
# step changes it by less than a code".
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -c '
import torch
from torch.optim.swa_utils import AveragedModel

def second_moment(first, key, make):
    weight = torch.zeros(64, dtype=dtype, requires_grad=True)
    optimizer = make([weight])
    for i in range(5001):
        weight.grad = torch.full_like(weight, first if i == 0 else 1.0)
        optimizer.step()
    return optimizer.state[weight][key][0].item()

def adam(**form):
    return lambda weights: torch.optim.AdamW(weights, lr=1e-3, **form)

def rmsprop(weights):
    return torch.optim.RMSprop(weights, lr=1e-3, alpha=0.999)

fused = [("fused", {"fused": True})] if torch.__version__ >= "2" else []
for dtype in torch.float32, torch.bfloat16:
    name = str(dtype)[6:]
    for form, options in [("loop", {"foreach": False}), ("foreach", {"foreach": True})] + fused:
        print("%s, Adam, %s: %.3f" % (name, form, second_moment(100.0, "exp_avg_sq", adam(**options))))
    print("%s, Adam, ones: %.3f" % (name, second_moment(1.0, "exp_avg_sq", adam())))
    print("%s, RMSprop: %.3f" % (name, second_moment(100.0, "square_avg", rmsprop)))
    layer = torch.nn.Linear(1, 1, bias=False).to(dtype)
    layer.weight.data.fill_(0)
    average = AveragedModel(layer, avg_fn=lambda old, new, count: 0.999 * old + 0.001 * new)
    average.update_parameters(layer)
    layer.weight.data.fill_(1)
    for _ in range(5000):
        average.update_parameters(layer)
    print("%s, average of weights: %.3f" % (name, average.module.weight))
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  forms=(loop foreach)
  [ "$suite" = bookworm ] || forms+=(fused)
  for form in "${forms[@]}"; do
    expect "$suite: f32, $form" grep -qxF "$suite: float32, Adam, $form: 1.061" "$work/out"
    expect "$suite: bf16, $form" grep -qxF "$suite: bfloat16, Adam, $form: 10.000" "$work/out"
  done
  for line in 'float32, Adam, ones: 0.993' 'bfloat16, Adam, ones: 0.500' \
    'float32, RMSprop: 1.061' 'bfloat16, RMSprop: 10.000' \
    'float32, average of weights: 0.993' 'bfloat16, average of weights: 0.500'; do
    expect "$suite: $line" grep -qxF "$suite: $line" "$work/out"
  done
done
done_with_it
