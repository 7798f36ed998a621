#!/usr/bin/env bash
# PyTorch-Ignite 0.5.1: R2Score and PearsonCorrelation take the spread of values as the sum of squares less the square
# of the sum, in f32, also for tensors of f64. Where values lie far from 0 beside their spread (years, prices), no digit
# is right, and both leave their range without a warning. scikit-learn and NumPy take the mean away first. mIoU counts a
# class that neither occurs nor is predicted as 0, which scikit-learn leaves out.
# Seen, 1,000 targets of deviation 1 and outputs that are off by 0.1, in ten batches: R2 0.989 and correlation 0.995
# are right. Around 0 they are so. Around 20 means from 10,000 to 105,000, R2 is off by more than 0.005 at most of them,
# and above 1 at some of them. The correlation is off by more than 0.1 at most, and some are above 1: up to 10^11.
# Three classes of four that are answered rightly: mIoU 0.75, jaccard_score(average="macro") 1.
# Frugal: r2 is in f64, around the running mean (train/metrics/metrics.cpp, FitOfValues), and miou leaves absent classes
# out (Confusion::mean_iou); tests/train/metrics/metrics_test.cpp, "r2 is the share of the values' variance that outputs
# explain, over all batches". docs/guide/using.md says it.
. "$(dirname "$0")/packages.sh"
packages trixie 'python3-torch-ignite=0.5.1*' 'python3-torch=2.6.0*' 'python3-sklearn=1.4.2*'
python_in trixie -W ignore -c '
import numpy
import torch
from ignite.metrics import ConfusionMatrix, mIoU
from ignite.metrics.regression import PearsonCorrelation, R2Score
from sklearn.metrics import jaccard_score, r2_score


def score(metric, outputs, targets):
    for pair in zip(outputs.split(100), targets.split(100)):
        metric.update(pair)
    return metric.compute()


rng = numpy.random.default_rng(0)
spread = rng.standard_normal(1000)
answers = spread + 0.1 * rng.standard_normal(1000)
for dtype in torch.float32, torch.float64:
    wrong_fits, wrong_correlations, above, largest = 0, 0, 0, 0
    for mean in [0] + [10000 + 5000 * i for i in range(20)]:
        targets, outputs = (torch.tensor(each + mean, dtype=dtype) for each in (spread, answers))
        wide = [each.double().numpy() for each in (targets, outputs)]
        assert abs(r2_score(*wide) - 0.989) < 0.002 and abs(numpy.corrcoef(*wide)[0, 1] - 0.9946) < 0.002
        fit, correlation = score(R2Score(), outputs, targets), score(PearsonCorrelation(), outputs, targets)
        if mean == 0:
            print("%s around 0: R2 %.3f, correlation %.3f" % (dtype, fit, correlation))
        else:
            wrong_fits += abs(fit - 0.989) > 0.005
            wrong_correlations += abs(correlation - 0.9946) > 0.1
            above += fit > 1
            largest = max(largest, abs(correlation))
    print("%s: wrong R2 %d of 20, above 1 %d, wrong correlations %d of 20, the largest %.3g" % (
        dtype, wrong_fits, above, wrong_correlations, largest))
labels = torch.tensor([0, 1, 2])
logits = torch.eye(4)[labels]
print("mIoU %.2f, jaccard %.2f" % (score(mIoU(ConfusionMatrix(4)), logits, labels),
                                   jaccard_score(labels, logits.argmax(1), average="macro")))
' 2>/dev/null | tee "$work/out"
for dtype in torch.float32 torch.float64; do
  expect "$dtype: both are right around 0" grep -qx "$dtype around 0: R2 0.989, correlation 0.995" "$work/out"
  read -r fits above correlations < <(
    sed -n "s/^$dtype: wrong R2 \([0-9]*\) of 20, above 1 \([0-9]*\), wrong correlations \([0-9]*\) .*/\1 \2 \3/p" \
      "$work/out") || true
  largest=$(sed -n "s/^$dtype: .* the largest //p" "$work/out")
  expect "$dtype: R2 is wrong at most means" [ "${fits:-0}" -ge 12 ]
  expect "$dtype: R2 is above 1 at some" [ "${above:-0}" -ge 1 ]
  expect "$dtype: the correlation is wrong at most means" [ "${correlations:-0}" -ge 12 ]
  expect "$dtype: a correlation is above 1" awk "BEGIN { exit !(${largest:-0} > 1) }"
done
expect "a class that is absent counts 0" grep -qx 'mIoU 0.75, jaccard 1.00' "$work/out"
done_with_it
