#!/usr/bin/env bash
# PyTorch 1.13 and 2.6, on the CPU: randint() and random_() take the remainder of a number of 32 bits where the range is
# below 2^32. Where it is large, the first numbers come twice as often as the others. Batches that are drawn as places
# in a file of some billion tokens see its beginning twice as often as its end. The manual says uniformly.
# A seed keeps its last 32 bits: seeds that differ by a multiple of 2^32 give one sequence, also to generators of their
# own and to randperm(), though initial_seed() says what was asked for. The seed -1 is that of 2^32 - 1.
# Seen, a million draws below 3 * 10^9: 0.603 of them lie below 2^32 - 3 * 10^9, which is 0.432 of the range. Below
# 3 * 2^30, 0.500 lie in the first third. Below 5 * 2^28: 0.250 in the first fifth. Below 2^32 and 6 * 10^9, which take
# 64 bits, shares are right. The seeds 5, 5 + 2^32 and 5 + 7 * 2^32 give equal numbers.
# Frugal: whole numbers are remainders of 64 bits, with a bias below bound / 2^64 (core/rng.cpp, uniform_int), and all
# 64 bits of a seed are the key of Philox; tests/core/rng_test.cpp, "Philox gives the published words".
# docs/guide/pytorch.md says it to loops of PyTorch.
. "$(dirname "$0")/packages.sh"
both_torches
for suite in bookworm trixie; do
  python_in "$suite" -c '
import torch


def share(bound, first):
    torch.manual_seed(0)
    draws = torch.randint(0, bound, (1000000,))
    print("below %d: %.2f lie in the first %.2f" % (bound, (draws < first).double().mean(), first / bound))


for bound in 3000000000, 3 << 30, 5 << 28:
    share(bound, (1 << 32) % bound)
share(1 << 32, 1 << 31)
share(6000000000, 3000000000)
torch.manual_seed(0)
draws = torch.empty(1000000, dtype=torch.int64).random_(0, 3 << 30)
print("random_: %.2f lie in the first third" % (draws < 1 << 30).double().mean())


def numbers(seed):
    generator = torch.Generator().manual_seed(seed)
    assert generator.initial_seed() == seed % (1 << 64)
    return torch.rand(4, generator=generator).tolist() + torch.randperm(30, generator=generator).tolist()


for seed in 5 + (1 << 32), 5 + (7 << 32), 6:
    print("seed %d: %s" % (seed, "as the seed 5" if numbers(seed) == numbers(5) else "others than the seed 5"))
print("seed -1:", "as 2^32 - 1" if numbers(-1) == numbers((1 << 32) - 1) else "others than 2^32 - 1")
' 2>/dev/null | sed "s/^/$suite: /" | tee "$work/out"
  while read -r line; do expect "$suite: $line" grep -qxF "$suite: $line" "$work/out"; done <<'END_OF_LINES'
below 3000000000: 0.60 lie in the first 0.43
below 3221225472: 0.50 lie in the first 0.33
below 1342177280: 0.25 lie in the first 0.20
below 4294967296: 0.50 lie in the first 0.50
below 6000000000: 0.50 lie in the first 0.50
random_: 0.50 lie in the first third
seed 4294967301: as the seed 5
seed 30064771077: as the seed 5
seed 6: others than the seed 5
seed -1: as 2^32 - 1
END_OF_LINES
done
done_with_it
