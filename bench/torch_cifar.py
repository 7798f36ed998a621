#!/usr/bin/env python3
"""Trains a ResNet-20 of PyTorch on CIFAR-10, whole or by frugal.torch. Prints a line of JSON for each epoch.

usage: torch_cifar.py FOLDER [--bits 0|2|4|...] [--seed 1] [--epochs 6] [--threads 1]
FOLDER holds data_batch_1.bin to data_batch_5.bin and test_batch.bin, or cifar-10-batches-bin with them.
needs: frugal in PYTHONPATH, Debian's python3-torch and python3-torchvision

The schedule is that of configs/cifar10_resnet20_short.json: SGD with a one-cycle rate up to 0.2, pictures shifted by up to 4 pixels and
flipped. A seed gives the weights, the order and the changes of the pictures. "saved" and "kept" are bytes of the last step.
"""
import argparse
import json
import pathlib
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch_step import small_image_resnet

import frugal.torch as ft

MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).view(1, 3, 1, 1)
DEVIATION = torch.tensor([0.2470, 0.2435, 0.2616]).view(1, 3, 1, 1)


def pictures(folder, names):
    records = np.concatenate([np.fromfile(folder / name, np.uint8).reshape(-1, 3073) for name in names])
    x = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32)) / 255
    return (x - MEAN) / DEVIATION, torch.from_numpy(records[:, 0].astype(np.int64))


def changed(x, random):
    """The pictures of a batch, each shifted by up to 4 pixels and flipped or not."""
    padded = F.pad(x, (4, 4, 4, 4))
    places = torch.randint(0, 9, (len(x), 2), generator=random).tolist()
    cut = torch.stack([padded[i, :, y:y + 32, left:left + 32] for i, (y, left) in enumerate(places)])
    flips = torch.rand(len(x), generator=random) < 0.5
    cut[flips] = cut[flips].flip(-1)
    return cut


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        right = sum((model(x[i:i + 500]).argmax(1) == y[i:i + 500]).sum().item() for i in range(0, len(x), 500))
    model.train()
    return 100 * right / len(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--bits", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    inner = args.folder / "cifar-10-batches-bin"
    folder = inner if inner.is_dir() else args.folder

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    random = torch.Generator().manual_seed(args.seed)
    x, y = pictures(folder, [f"data_batch_{i}.bin" for i in range(1, 6)])
    test_x, test_y = (t.contiguous() for t in pictures(folder, ["test_batch.bin"]))
    model = small_image_resnet([16, 32, 64], [3, 3, 3]).to(memory_format=torch.channels_last)
    loss = nn.CrossEntropyLoss()
    steps = len(x) // args.batch
    optimizer = torch.optim.SGD(model.parameters(), 0.2, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=args.epochs * steps)
    context = ft.compress([model, loss], bits=args.bits)
    for epoch in range(1, args.epochs + 1):
        begin, total = time.monotonic(), 0.0
        order = torch.randperm(len(x), generator=random)[: steps * args.batch].view(steps, args.batch)
        for batch in order:
            inputs = changed(x[batch], random).contiguous(memory_format=torch.channels_last)
            optimizer.zero_grad()
            with context as memory:
                value = loss(model(inputs), y[batch])
                value.backward()
            optimizer.step()
            schedule.step()
            total += value.item()
        print(json.dumps({
            "bits": args.bits, "seed": args.seed, "epoch": epoch, "loss": round(total / steps, 4),
            "accuracy": accuracy(model, test_x, test_y), "seconds": round(time.monotonic() - begin, 1),
            "saved": memory.saved, "kept": memory.kept, "torch": torch.__version__,
        }), flush=True)


if __name__ == "__main__":
    main()
