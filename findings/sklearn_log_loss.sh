#!/usr/bin/env bash
# scikit-learn 1.2.1 and 1.4.2: log_loss() of the same probabilities depends on the dtype of their array. It takes none
# as smaller than the step beside 1 in that dtype: 2.2e-16, 1.2e-7 and 0.00098. f32 itself holds 1e-38. A network's
# probabilities are f32 or f16, and what it is confidently wrong about then costs too little.
# Seen, 4 samples of which 3 have the probability 1e-9: 15.54 in f64, 11.96 in f32, 5.20 in f16 (right: 15.54). Of two
# networks, one that is wrong with 1e-20 and one with 1e-7, f32 gives both 15.9.
# balanced_accuracy_score(), which is said to be the mean recall of the classes, is 0.75 where recall_score(average=
# "macro") is 0.5: a class that is predicted and never occurs is left out by the one and counts 0 in the other.
# Frugal: losses and the perplexity come from logits (ops/loss/cross_entropy.h); docs/guide/using.md, below the table of
# metrics; tests/ops/loss/cross_entropy_test.cpp, "cross_entropy: huge logits do not overflow, -inf may be masked out,
# NaN shows".
. "$(dirname "$0")/packages.sh"
packages bookworm 'python3-sklearn=1.2.1*'
packages trixie 'python3-sklearn=1.4.2*'
for suite in bookworm trixie; do
  python_in "$suite" -W ignore -c '
import numpy
from sklearn.metrics import balanced_accuracy_score, log_loss, recall_score

for name in "float64", "float32", "float16":
    rows = numpy.array([[1 - 1e-9, 1e-9]] * 4).astype(name)
    print("log_loss %s: %.2f" % (name, log_loss([1, 1, 1, 0], rows)))
for p in 1e-7, 1e-20:
    rows = numpy.array([[1, p], [1, p]], numpy.float32)
    costs = [2 * log_loss([1, 0], each) for each in (rows, rows.astype(float))]
    print("wrong with %g: %.1f in f32, %.1f in f64" % (p, *costs))
truth, said = [0, 0, 1, 1], [0, 2, 1, 1]
recall = recall_score(truth, said, average="macro")
print("balanced %.2f, mean recall %.2f" % (balanced_accuracy_score(truth, said), recall))
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  for line in 'log_loss float64: 15.54' 'log_loss float32: 11.96' 'log_loss float16: 5.20' \
    'balanced 0.75, mean recall 0.50'; do
    expect "$suite: $line" grep -qx "$suite: $line" "$work/out"
  done
  expect "$suite: both cost as much in f32" [ "$(grep -c ': 15.9 in f32' "$work/out")" = 2 ]
done
done_with_it
