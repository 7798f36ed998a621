"""One of two processes of DistributedDataParallel, for torch_test.py.

usage: torch_ddp.py FOLDER RANK      writes FOLDER/RANK.pt: gradients by name, for some bits
"""

import os
import sys

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import frugal.torch as ft


class Net(nn.Module):
    """No batch norm: a norm of a half of the batch has other statistics."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.GELU(), nn.MaxPool2d(2)
        )
        self.last = nn.Linear(16 * 64, 10)

    def forward(self, x):
        return self.last(self.layers(x).flatten(1))


def gradients(network, x, y, bits):
    network.zero_grad()
    with ft.compress(network, bits=bits, min_elements=256) as memory:
        nn.functional.cross_entropy(network(x), y).backward()
    named = {name.replace("module.", "", 1): p.grad.clone() for name, p in network.named_parameters()}
    return named, memory


folder, rank = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
torch.manual_seed(0)
network = Net()
x, y = torch.randn(8, 3, 16, 16), torch.arange(8)
found = {"alone": gradients(network, x, y, 0)[0]}
torch.distributed.init_process_group(
    "gloo", init_method="file://" + os.path.join(folder, "meeting"), rank=rank, world_size=2
)
# Buckets of a few KiB, so that sums begin while the backward pass goes on.
both = DistributedDataParallel(network, bucket_cap_mb=0.02)
share = slice(4 * rank, 4 * rank + 4)
for bits in (0, 8, 4):
    found[f"bits {bits}"], memory = gradients(both, x[share], y[share], bits)
found["ratio"] = memory.ratio
torch.save(found, os.path.join(folder, f"{rank}.pt"))
torch.distributed.destroy_process_group()
