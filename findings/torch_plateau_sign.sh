#!/usr/bin/env bash
# PyTorch 1.13 and 2.6: ReduceLROnPlateau, as it is by default, never finds a plateau where the metric is below 0, as a
# log-likelihood, an ELBO or a loss with a margin may be. Better means below best * (1 - 1e-4), and that is above best.
# So an evaluation that is equal, or a little worse, counts as the best one, and best becomes worse.
# Seen, patience 2, 12 evaluations of 5: the rate falls three times, to 0.001. 12 evaluations of -5: it stays 1. From -5
# up to -4.9956 in steps of 0.0004, which is worse each time: it stays 1, and best is -4.9956. It is so with mode="max"
# and a metric below 0, too. With threshold_mode="abs" both signs are alike.
# Frugal: early stopping and the best weights compare by an absolute difference (train/early_stop.cpp);
# tests/train/early_stop_test.cpp, "a metric below 0 that stands still is not better".
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -W ignore -c '
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

for mode in "min", "max":
    worse = 1 if mode == "min" else -1
    for threshold_mode in "rel", "abs":
        for name, metrics in {
            "5": [5.0] * 12, "-5": [-5.0] * 12, "5, worse": [5 + worse * 0.0004 * i for i in range(12)],
            "-5, worse": [-5 + worse * 0.0004 * i for i in range(12)],
        }.items():
            optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
            schedule = ReduceLROnPlateau(optimizer, mode, patience=2, threshold_mode=threshold_mode)
            for metric in metrics:
                schedule.step(metric)
            found = mode, threshold_mode, name, optimizer.param_groups[0]["lr"], schedule.best
            print("%s, %s, %s: rate %.3g, best %.6g" % found)
' 2>/dev/null | sed "s/^/$suite, /" | tee "$work/out"
  for mode in min max; do
    expect "$suite, $mode: found above 0" grep -qx "$suite, $mode, rel, 5: rate 0.001, best 5" "$work/out"
    expect "$suite, $mode: not found below 0" grep -qx "$suite, $mode, rel, -5: rate 1, best -5" "$work/out"
    expect "$suite, $mode: alike with abs" grep -qx "$suite, $mode, abs, -5: rate 0.001, best -5" "$work/out"
  done
  expect "$suite: worse is best" grep -qx "$suite, min, rel, -5, worse: rate 1, best -4.9956" "$work/out"
done
done_with_it
