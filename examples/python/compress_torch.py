"""A convolutional network of PyTorch, trained with what it saves in 4 bits.

usage: compress_torch.py [STEPS]
"""

import sys

import torch
from torch import nn

import frugal.torch as ft


def block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)
    )


torch.manual_seed(0)
model = nn.Sequential(block(3, 32), block(32, 64), nn.Flatten(), nn.Dropout(0.2), nn.Linear(64 * 64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
context = ft.compress(model, bits=4)
for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 20):
    labels = torch.randint(0, 4, (32,))
    pictures = torch.randn(32, 3, 32, 32) + labels.view(-1, 1, 1, 1) / 4
    optimizer.zero_grad()
    with context as memory:
        loss = nn.functional.cross_entropy(model(pictures), labels)
        loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3f}")
print(memory)
