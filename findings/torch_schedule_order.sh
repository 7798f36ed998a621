#!/usr/bin/env bash
# PyTorch 1.13 and 2.6: a schedule of learning rates that is made after the optimizer's state was loaded goes on with
# other rates, although its own state is loaded then, too. Its constructor takes the first step on what it finds, and
# the schedules that multiply the rate by a factor never come back. With the schedule made first, all go on as they
# should.
# Seen, a run with a rate of 1 that is cut after 6 steps: a warm-up (LinearLR from 0.1, ConstantLR) goes on with 0.1
# instead of 1, for the rest of the run; a warm-up and then a cosine (SequentialLR) with 0.081 instead of 0.691 in the
# second step, and with 0.12 of its rates from then on. LambdaLR, OneCycleLR and CosineAnnealingWarmRestarts have one
# step with the rate of the beginning. StepLR and CosineAnnealingLR go on as they should in both orders.
# Frugal: a rate follows from the number of the step alone (optim/schedule.h); tests/train/run/resume_test.cpp, "runs
# that are cut go on to the same bits, also where batches change in shape".
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -W ignore -c '
import copy
import torch
from torch.optim import lr_scheduler as lr

def optimizer_with(rate=1.0):
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=rate)

def rates(optimizer, schedule, steps):
    found = []
    for _ in range(steps):
        found.append("%.3f" % optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found

def warm_up(optimizer):
    return lr.LinearLR(optimizer, 0.1, 1.0, 4)

for name, make in {
    "LinearLR": warm_up,
    "ConstantLR": lambda o: lr.ConstantLR(o, 0.1, 4),
    "SequentialLR": lambda o: lr.SequentialLR(o, [warm_up(o), lr.CosineAnnealingLR(o, 8)], [4]),
    "LambdaLR": lambda o: lr.LambdaLR(o, lambda step: 0.9**step),
    "OneCycleLR": lambda o: lr.OneCycleLR(o, 1.0, total_steps=20),
    "WarmRestarts": lambda o: lr.CosineAnnealingWarmRestarts(o, 4),
    "StepLR": lambda o: lr.StepLR(o, 3, 0.1),
    "CosineAnnealingLR": lambda o: lr.CosineAnnealingLR(o, 8),
}.items():
    optimizer = optimizer_with()
    schedule = make(optimizer)
    rates(optimizer, schedule, 6)
    states = copy.deepcopy((optimizer.state_dict(), schedule.state_dict()))
    print(name, "as it was:", *rates(optimizer, schedule, 3))
    for order in "schedule first", "schedule last":
        optimizer = optimizer_with()
        if order == "schedule last":
            optimizer.load_state_dict(states[0])
        schedule = make(optimizer)
        schedule.load_state_dict(states[1])
        if order == "schedule first":
            optimizer.load_state_dict(states[0])
        print(name, order + ":", *rates(optimizer, schedule, 3))
' | sed "s/^/$suite: /" | tee "$work/out"
  rates_of() { sed -n "s/^$suite: $1: //p" "$work/out"; }
  for name in LinearLR ConstantLR SequentialLR LambdaLR OneCycleLR WarmRestarts StepLR CosineAnnealingLR; do
    expect "$suite: $name, made first" [ "$(rates_of "$name schedule first")" = "$(rates_of "$name as it was")" ]
  done
  for name in StepLR CosineAnnealingLR; do
    expect "$suite: $name, made last" [ "$(rates_of "$name schedule last")" = "$(rates_of "$name as it was")" ]
  done
  for line in 'LinearLR as it was: 1.000 1.000 1.000' 'LinearLR schedule last: 0.100 0.100 0.100' \
    'ConstantLR schedule last: 0.100 0.100 0.100' 'SequentialLR as it was: 0.854 0.691 0.500' \
    'SequentialLR schedule last: 0.100 0.081 0.059' 'LambdaLR as it was: 0.531 0.478 0.430' \
    'LambdaLR schedule last: 1.000 0.478 0.430' 'OneCycleLR schedule last: 0.040 0.950 0.891' \
    'WarmRestarts schedule last: 1.000 0.146 1.000'; do
    expect "$suite: $line" grep -qxF "$suite: $line" "$work/out"
  done
done
done_with_it
