#!/usr/bin/env bash
# PyTorch 1.13 and 2.6: which running statistics of batch norms an averaged model (AveragedModel) evaluates with depends
# on the version. 1.13 leaves those that it began with: a mean of 0 and a variance of 1, whatever the network has seen.
# 2.6 takes the network's last ones. With use_buffers=True both average buffers as if they were weights.
# Seen, a batch norm that sees 30 batches of mean 10 and variance 9: its running mean is 9.6. That of the average is 0
# in 1.13 and 9.6 in 2.6. So an evaluation of the average in 1.13 normalizes nothing: its outputs have the mean
# 9.9. With use_buffers=True the running mean is 7.1, and the count of batches, a whole number, stays 1. With a decay of
# 0.9 they are 8.3 and 20.
# Frugal: averages are of parameters alone, and evaluations of them take the network's running statistics
# (optim/averaged.h); docs/guide/configs.md, "optim.ema", says so.
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -W ignore -c '
import torch
from torch.optim.swa_utils import AveragedModel

for name, options in {
    "default": {}, "use_buffers": {"use_buffers": True},
    "decay": {"use_buffers": True, "avg_fn": lambda average, value, count: 0.9 * average + 0.1 * value},
}.items():
    torch.manual_seed(0)
    network = torch.nn.BatchNorm1d(1)
    average = AveragedModel(network, **options)
    for _ in range(30):
        network(3 * torch.randn(4096, 1) + 10)
        average.update_parameters(network)
    network.eval()
    average.eval()
    x = 3 * torch.randn(4096, 1) + 10
    print("%s: running mean %.1f and %.1f, batches %d and %d, output %.1f and %.1f"
          % (name, network.running_mean, average.module.running_mean, network.num_batches_tracked,
             average.module.num_batches_tracked, network(x).mean(), average(x).mean()))
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  case $suite in
    bookworm) seen='9.6 and 0.0, batches 30 and 0, output 0.1 and (9.9|10.0)' ;;
    trixie) seen='9.6 and 9.6, batches 30 and 30, output 0.1 and 0.1' ;;
  esac
  expect "$suite: as they are by default" grep -qE "default: running mean $seen\$" "$work/out"
  expect "$suite: averages of buffers" grep -q 'use_buffers: running mean 9.6 and 7.1, batches 30 and 1,' "$work/out"
  expect "$suite: with a decay" grep -q 'decay: running mean 9.6 and 8.3, batches 30 and 20,' "$work/out"
done
done_with_it
