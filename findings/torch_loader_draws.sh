#!/usr/bin/env bash
# PyTorch 1.13 and 2.6: to begin with a DataLoader draws a number from the generator of the whole program, also where it
# does not shuffle and has no workers. So whoever evaluates once more, or looks at one batch, changes all that training
# draws from then on: dropout, the order of the next epoch, noise.
# Seen, with one seed: the mask of dropout after list(DataLoader(data)) of a loader that does not shuffle is another one
# than without it; with a generator of its own (generator=torch.Generator()) it is the same. Two runs that differ in how
# often they evaluate alone are therefore two seeds.
# Frugal: evaluations draw nothing, and each draw of training follows from the seed, the kind of draw and the step
# (core/random/random_streams.h); tests/train/trainer_test.cpp, "how often a run evaluates does not change what it
# trains".
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -c '
import torch
from torch.utils.data import DataLoader

def mask_after(evaluate):
    torch.manual_seed(0)
    evaluate()
    return torch.nn.functional.dropout(torch.ones(1000))

plain = mask_after(lambda: None)
for name, options in {
    "no shuffling": {},
    "shuffling": {"shuffle": True},
    "a generator of its own": {"generator": torch.Generator().manual_seed(1)},
}.items():
    after = mask_after(lambda: list(DataLoader(range(8), **options)))
    print("%s: %s" % (name, "the same mask" if torch.equal(after, plain) else "another mask"))
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  for line in 'no shuffling: another mask' 'shuffling: another mask' 'a generator of its own: the same mask'; do
    expect "$suite: $line" grep -qxF "$suite: $line" "$work/out"
  done
done
done_with_it
