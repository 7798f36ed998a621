"""Resident memory of three training steps of a torchvision network, whole or by frugal.torch.

usage: torch_resident.py MODEL BATCH SIZE [BITS]      0 bits, the default: whole. Prints one line of JSON, MiB
"""

import json
import resource
import sys

import torch
import torch.nn as nn
import torchvision

import frugal.torch as ft


def resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


name, batch, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
bits = int(sys.argv[4]) if len(sys.argv) > 4 else 0
before = resident()
model = getattr(torchvision.models, name)(num_classes=10).to(memory_format=torch.channels_last)
loss = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
context = ft.compress([model, loss], bits=bits)
for _ in range(3):
    x = torch.randn(batch, 3, size, size).contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, 10, (batch,))
    optimizer.zero_grad()
    with context as memory:
        loss(model(x), y).backward()
    optimizer.step()
print(
    json.dumps(
        {
            "model": name, "batch": batch, "size": size, "bits": bits, "torch": torch.__version__,
            "resident_mib": resident(), "before_mib": before,
            "saved_mib": memory.saved >> 20, "kept_mib": memory.kept >> 20,
        }
    )
)  # fmt: skip
