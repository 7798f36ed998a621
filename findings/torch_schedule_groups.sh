#!/usr/bin/env bash
# PyTorch 1.13 and 2.6: which rate a group of parameters gets that is added to the optimizer while a schedule runs, as
# where layers are thawed one after another, depends on the schedule. Some take it along from then on, some never touch
# it, and some scale it by what is left of their curve. None says so, but OneCycleLR with an error.
# Seen, all groups begin with 1 and the second one is added after the first step. LambdaLR, MultiplicativeLR and
# CosineAnnealingWarmRestarts leave it at 1. A warm-up from 0.1 (LinearLR) multiplies it on and on: it ends at 3.08,
# where the first group ends at 1. CosineAnnealingLR and PolynomialLR bring it to 0 along another curve. StepLR,
# ExponentialLR and MultiStepLR take it along.
# Frugal: one rate for all parameters follows from the step (optim/schedule.h), and those that are thawed later are in
# the optimizer from the beginning; tests/optim/frozen_test.cpp, "a leaf is its parameter's, also after parameters were
# frozen and thawed".
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -W ignore -c '
import torch
from torch.optim import lr_scheduler as lr

def parameter():
    return torch.zeros(1, requires_grad=True)

for name, make in {
    "StepLR": lambda o: lr.StepLR(o, 2, 0.1),
    "ExponentialLR": lambda o: lr.ExponentialLR(o, 0.5),
    "MultiStepLR": lambda o: lr.MultiStepLR(o, [3, 5]),
    "LambdaLR": lambda o: lr.LambdaLR(o, lambda step: 0.5**step),
    "MultiplicativeLR": lambda o: lr.MultiplicativeLR(o, lambda step: 0.5),
    "WarmRestarts": lambda o: lr.CosineAnnealingWarmRestarts(o, 20),
    "LinearLR": lambda o: lr.LinearLR(o, 0.1, 1.0, 4),
    "CosineAnnealingLR": lambda o: lr.CosineAnnealingLR(o, 7),
    "PolynomialLR": lambda o: lr.PolynomialLR(o, 7),
    "OneCycleLR": lambda o: lr.OneCycleLR(o, 1.0, total_steps=9),
}.items():
    optimizer = torch.optim.SGD([parameter()], lr=1.0)
    schedule = make(optimizer)
    optimizer.step()
    schedule.step()
    optimizer.add_param_group({"params": [parameter()], "lr": 1.0})
    try:
        found = []
        for _ in range(6):
            optimizer.step()
            schedule.step()
            found.append([group["lr"] for group in optimizer.param_groups])
        for i in range(2):
            print(name, ("first" if i == 0 else "added") + ":", *("%.3f" % rates[i] for rates in found))
    except KeyError as error:
        print(name, "KeyError", error)
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  rates_of() { sed -n "s/^$suite: $1 $2: //p" "$work/out"; }
  for name in LambdaLR MultiplicativeLR WarmRestarts; do
    expect "$suite: $name does not touch it" [ "$(rates_of $name added)" = '1.000 1.000 1.000 1.000 1.000 1.000' ]
  done
  expect "$suite: LinearLR, first" [ "$(rates_of LinearLR first)" = '0.550 0.775 1.000 1.000 1.000 1.000' ]
  expect "$suite: LinearLR, added" [ "$(rates_of LinearLR added)" = '1.692 2.385 3.077 3.077 3.077 3.077' ]
  expect "$suite: CosineAnnealingLR, added" \
    [ "$(rates_of CosineAnnealingLR added)" = '0.854 0.643 0.409 0.198 0.052 0.000' ]
  for name in StepLR ExponentialLR MultiStepLR; do
    other=$(rates_of $name added)
    expect "$suite: $name takes it along" [ "${other##* }" != 1.000 ]
  done
  expect "$suite: OneCycleLR is an error" grep -q 'OneCycleLR KeyError' "$work/out"
done
done_with_it
