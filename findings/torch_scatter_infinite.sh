#!/usr/bin/env bash
# torch-scatter 2.1.2, by which graph networks of PyTorch pool neighbours: scatter_max() makes 0 of a group that is all
# minus infinity, or all NaN, as if the group were empty. scatter_min() does so with infinity and NaN. A NaN among
# numbers is passed over. Masked scores are minus infinity, and their maximum then is larger than every score below 0.
# segment_csr() makes the least finite float of such a group, so what one of the two says, the other one does not.
# Nothing warns. PyTorch's own scatter_reduce() and softmax() keep both.
# Seen, the groups (a, a), (1, 2), (3), PyTorch 2.6. a = -inf: scatter_max 0, segment_csr -3.4e38, scatter_reduce -inf;
# scatter_logsumexp says 0, which is the logarithm of 1, where the sum of probabilities is 0. a = NaN: 0, -3.4e38 and
# NaN, and no gradient. scatter_min of infinity: 0, and 3.4e38. A group of 1 and NaN: 1, 1 and NaN, whichever is first.
# It is so in f16, bf16, f32 and f64. A network whose values have become NaN looks finite behind such a pooling.
# Frugal: NaN is larger than everything, and a group of minus infinities has it (ops/graph/segment.h);
# tests/ops/graph/spmm_test.cpp, "the maximum is the first of its row, NaN above all, 0 without entries".
. "$(dirname "$0")/packages.sh"
packages trixie 'python3-torch-scatter=2.1.2*' 'python3-torch=2.6.0*'
python_in trixie -c '
import torch
from torch_scatter import scatter_logsumexp, scatter_max, scatter_min, segment_csr

inf, nan = float("inf"), float("nan")
index, bounds = torch.tensor([0, 0, 1, 1, 2]), torch.tensor([0, 2, 4, 5])


def all_of(name, first, second, dtype=torch.float32):
    x = torch.tensor([first, second, 1, 2, 3], dtype=dtype)
    reduced = torch.zeros(3, dtype=dtype).scatter_reduce(0, index, x, "amax", include_self=False)
    results = scatter_max(x, index)[0], segment_csr(x, bounds, reduce="max"), reduced
    print(name, "max:", *("%.2g" % each[0] for each in results), ", the rest is right" if all(
        each[1:].tolist() == [2, 3] for each in results) else ", the rest is wrong")


all_of("minus infinity", -inf, -inf)
all_of("NaN", nan, nan)
all_of("1 and NaN", 1, nan)
all_of("NaN and 1", nan, 1)
for dtype in torch.float16, torch.bfloat16, torch.float64:
    x = torch.tensor([-inf, -inf, nan, nan, 3], dtype=dtype)
    print(dtype, *scatter_max(x, index)[0].tolist())
x = torch.tensor([inf, inf, 1, 2, 3])
print("infinity min: %.2g %.2g" % (scatter_min(x, index)[0][0], segment_csr(x, bounds, reduce="min")[0]))
print("logsumexp of minus infinity: %.2g" % scatter_logsumexp(-x, index)[0])
x = torch.tensor([nan, nan, 1, 2, 3], requires_grad=True)
scatter_max(x, index)[0].sum().backward()
print("gradient", *x.grad.tolist())
' 2>/dev/null | tee "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
minus infinity max: 0 -3.4e+38 -inf , the rest is right
NaN max: 0 -3.4e+38 nan , the rest is right
1 and NaN max: 1 1 nan , the rest is right
NaN and 1 max: 1 1 nan , the rest is right
torch.float16 0.0 0.0 3.0
torch.bfloat16 0.0 0.0 3.0
torch.float64 0.0 0.0 3.0
infinity min: 0 3.4e+38
logsumexp of minus infinity: 0
gradient 0.0 0.0 0.0 1.0 1.0
END_OF_LINES
done_with_it
