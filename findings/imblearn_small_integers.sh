#!/usr/bin/env bash
# imbalanced-learn 0.10.0 and 0.12.4: SMOTE() makes samples of a rare class between two of its own, x + t (y - x), and
# subtracts in the dtype of the array. In uint8, which pixels, grades and counts are often stored as, y - x is 256 too
# large where y is below x, so the new sample lies anywhere. The dtype and the shape are right, and nothing warns. A
# network then learns noise as the rare class. SVMSMOTE() does so, too.
# Seen, 100 samples of four values from 0 to 59 and 20 of a rare class from 180 to 219, seed 0. SMOTE adds 80. As f32
# and int16 all values lie from 180 to 219. As uint8 they lie from 0 to 253, and 58 of the 80 samples have one that is
# 10 or more outside of the class. SVMSMOTE, which goes beyond the class by up to 11 in f32 and int16, adds 32: 18 of
# them have a value that is 20 or more outside as uint8, and none as f32 and int16.
# Frugal: no samples are made; train.class_weights gives a rare class more weight in the loss;
# tests/train/tasks/class_weights_test.cpp, "samples, rows, texts and nodes: a weighted mean in training, a plain one
# else". Bytes become f32 before anything is computed; tests/data/tables/tensor_file_test.cpp, "a dataset of arrays
# scales bytes and turns channels to the end". docs/guide/own_data.md says it to those who make samples elsewhere.
. "$(dirname "$0")/packages.sh"
packages bookworm 'python3-imblearn=0.10.0*'
packages trixie 'python3-imblearn=0.12.4*'
for suite in bookworm trixie; do
  python_in "$suite" -W ignore -c '
import numpy
from imblearn.over_sampling import SMOTE, SVMSMOTE

rng = numpy.random.default_rng(0)
rare = rng.integers(180, 220, (20, 4))
samples = numpy.concatenate([rng.integers(0, 60, (100, 4)), rare])
classes = numpy.repeat([0, 1], [100, 20])
for kind, far in (SMOTE, 10), (SVMSMOTE, 20):
    for dtype in "float32", "int16", "uint8":
        made = kind(random_state=0).fit_resample(samples.astype(dtype), classes)[0][120:]
        assert made.dtype == dtype
        made = made.astype(float)
        outside = ((made <= rare.min() - far) | (made >= rare.max() + far)).any(1).sum()
        print("%s %s: %d of %d outside, %.0f to %.0f" % (
            kind.__name__, dtype, outside, len(made), made.min(), made.max()))
' | tee "$work/out"
  while read -r line; do expect "$suite: $line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
SMOTE float32: 0 of 80 outside, 180 to 219
SMOTE int16: 0 of 80 outside, 180 to 218
SMOTE uint8: 58 of 80 outside, 0 to 253
SVMSMOTE float32: 0 of 32 outside, 169 to 226
SVMSMOTE int16: 0 of 32 outside, 169 to 226
SVMSMOTE uint8: 18 of 32 outside, 100 to 216
END_OF_LINES
done
done_with_it
