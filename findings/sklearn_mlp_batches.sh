#!/usr/bin/env bash
# scikit-learn 1.2.1 and 1.4.2: MLPClassifier and MLPRegressor divide the penalty alpha by the number of samples in the
# batch. The last batch of an epoch is what is left over, and it may be one sample: its step has the whole penalty, 200
# times that of a full batch, which has 200 samples unless one says otherwise. So one sample more changes how much all
# weights shrink, and half the batch shrinks them four times as much in an epoch. The manual says that alpha is divided
# by the sample size, which does not sound like the batch. With learning_rate="invscaling" the rate is said to fall at
# each time step. The time is the number of samples that were seen, and the rate falls only between epochs. So the
# second epoch of a large data set has hardly a rate, however few steps the first one had.
# Seen, alpha 1, rate 0.1, plain SGD, a gradient of 0 but for the penalty, one epoch: 200 samples leave 0.9995 of each
# weight, 201 leave 0.89955, 400 leave 0.999 and 401 leave 0.8991. 200 in batches of 100 leave 0.998, of 50 0.99202.
# invscaling, one step an epoch, rate 0.1: the second epoch has 0.0302 for 10 samples, 0.0032 for 1,000 and 0.0003 for
# 100,000. The second step has 0.0707 by the formula.
# Frugal: optim.weight_decay is in each step's update, whatever the batch (optim/sgd.cpp, optim/adam.cpp), and schedules
# count steps (optim/schedule.cpp); tests/optim/optim_test.cpp, "SGD follows its formula with and without momentum,
# Nesterov and decay" and "linear decay and the inverse root meet their closed forms, also behind a warm-up".
. "$(dirname "$0")/packages.sh"
packages bookworm 'python3-sklearn=1.2.1*'
packages trixie 'python3-sklearn=1.4.2*'
for suite in bookworm trixie; do
  python_in "$suite" -W ignore -c '
import numpy
from sklearn.neural_network import MLPClassifier, MLPRegressor

def weights(kind, samples, epochs=1, **options):
    # The inputs are 0, so the gradient of the first weights is that of the penalty.
    options = dict(alpha=1, learning_rate_init=0.1, solver="sgd", momentum=0, tol=0, random_state=0) | options
    network = kind([3], max_iter=epochs, **options)
    return network.fit(numpy.zeros([samples, 2]), numpy.arange(samples) % 2).coefs_[0]

def left(kind, samples, epochs=1, **options):
    whole = weights(kind, samples, **options | {"alpha": 0})
    share = weights(kind, samples, epochs, **options) / whole
    assert numpy.allclose(share, share.mean(), rtol=1e-6)
    return share.mean()

for kind in MLPClassifier, MLPRegressor:
    for samples, size in (200, "auto"), (201, "auto"), (400, "auto"), (401, "auto"), (200, 100), (200, 50):
        share = left(kind, samples, batch_size=size)
        print("%s, %d samples, batch %s: %.5f" % (kind.__name__, samples, size, share))
for samples in 10, 1000, 100000:
    options = {"batch_size": samples, "alpha": samples, "learning_rate": "invscaling"}
    first, second = left(MLPRegressor, samples, 1, **options), left(MLPRegressor, samples, 2, **options)
    print("invscaling, %d samples: %.4f %.4f" % (samples, 1 - first, 1 - second / first))' | tee "$work/out"
  while read -r line; do expect "$suite: $line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
MLPClassifier, 200 samples, batch auto: 0.99950
MLPClassifier, 201 samples, batch auto: 0.89955
MLPClassifier, 400 samples, batch auto: 0.99900
MLPClassifier, 401 samples, batch auto: 0.89910
MLPClassifier, 200 samples, batch 100: 0.99800
MLPClassifier, 200 samples, batch 50: 0.99202
MLPRegressor, 200 samples, batch auto: 0.99950
MLPRegressor, 201 samples, batch auto: 0.89955
MLPRegressor, 400 samples, batch auto: 0.99900
MLPRegressor, 401 samples, batch auto: 0.89910
MLPRegressor, 200 samples, batch 100: 0.99800
MLPRegressor, 200 samples, batch 50: 0.99202
invscaling, 10 samples: 0.1000 0.0302
invscaling, 1000 samples: 0.1000 0.0032
invscaling, 100000 samples: 0.1000 0.0003
END_OF_LINES
done
done_with_it
