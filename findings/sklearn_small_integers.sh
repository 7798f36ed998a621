#!/usr/bin/env bash
# scikit-learn 1.2.1 and 1.4.2: its measures of regression subtract in the dtype of the arrays. Of uint8, which pixels,
# grades and counts are often stored as, 0 - 1 is 255, and squares and sums of squares keep their last 8 bits. So an
# error may be too large or too small, without a warning, and a predictor that is worse than the mean looks nearly
# perfect.
# Seen, the values 0, 250, 10 and the predictions 5, 5, 250 as uint8 and as f64: mean_squared_error 48.67 and 39216.67,
# mean_absolute_error 85.33 and 163.33, median_absolute_error 11 and 240, r2_score 0.9964 and -1.9364, max_error 251 and
# 245, which is beyond any difference that there is.
# Frugal: targets and predictions are f32 and sums over them f64 (train/metrics/metrics.cpp);
# tests/train/metrics/metrics_test.cpp, "r2 is the share of the values' variance that outputs explain, over all
# batches"; docs/guide/using.md, below the table of metrics.
. "$(dirname "$0")/packages.sh"
packages bookworm 'python3-sklearn=1.2.1*'
packages trixie 'python3-sklearn=1.4.2*'
for suite in bookworm trixie; do
  python_in "$suite" -W error -c '
import numpy
from sklearn import metrics

values, predictions = numpy.array([0, 250, 10]), numpy.array([5, 5, 250])
for name in "mean_squared_error", "mean_absolute_error", "median_absolute_error", "r2_score", "max_error":
    found = [getattr(metrics, name)(values.astype(dtype), predictions.astype(dtype)) for dtype in ("uint8", "float64")]
    print("%s: %.4f %.4f" % (name, *found))' | sed "s/^/$suite, /" | tee -a "$work/out"
  while read -r line; do expect "$suite, $line" grep -qxF "$suite, $line" "$work/out"; done <<'END_OF_LINES'
mean_squared_error: 48.6667 39216.6667
mean_absolute_error: 85.3333 163.3333
median_absolute_error: 11.0000 240.0000
r2_score: 0.9964 -1.9364
max_error: 251.0000 245.0000
END_OF_LINES
done
done_with_it
