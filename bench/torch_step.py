#!/usr/bin/python3
"""One PyTorch training step on CPU: median time in both memory layouts and the bytes autograd saves. One JSON line a workload.

usage: torch_step.py [--steps 7] [--threads 2] r20|r18|r50 ...
needs: Debian's python3-torch and python3-torchvision

r20: CIFAR ResNet-20 with projection shortcuts, batch 128, 3x32x32; r18: ResNet-18 with a 3x3 stem, batch 32, 3x32x32;
r50: torchvision's ResNet-50, batch 4, 3x224x224. SGD with momentum. The same models as `frugal bench step --workload`.
"""
import argparse
import json
import statistics
import time
import warnings

import torch
import torchvision
from torch import nn
from torch.nn import functional as F

warnings.filterwarnings("ignore")


class Block(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.shortcut = nn.Sequential()
        if stride != 1 or c_in != c_out:
            self.shortcut = nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x), inplace=True)


def small_image_resnet(widths, depths):
    layers = [nn.Conv2d(3, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU(inplace=True)]
    c = widths[0]
    for stage, (width, depth) in enumerate(zip(widths, depths)):
        for i in range(depth):
            layers.append(Block(c, width, 2 if stage > 0 and i == 0 else 1))
            c = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 10))


WORKLOADS = {
    "r20": (lambda: small_image_resnet([16, 32, 64], [3, 3, 3]), 128, 32),
    "r18": (lambda: small_image_resnet([64, 128, 256, 512], [2, 2, 2, 2]), 32, 32),
    "r50": (lambda: torchvision.models.resnet50(), 4, 224),
}


def saved_bytes(model, x, y):
    """Bytes of distinct storages that autograd keeps, parameters left out."""
    parameters = {p.data_ptr() for p in model.parameters()}
    kept = {}

    def pack(t):
        if t.data_ptr() not in parameters:
            kept[t.data_ptr()] = max(kept.get(t.data_ptr(), 0), t.numel() * t.element_size())
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        F.cross_entropy(model(x), y)
    return sum(kept.values())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", choices=sorted(WORKLOADS))
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for name in args.names:
        torch.manual_seed(0)
        make, batch, side = WORKLOADS[name]
        model, x, y = make(), torch.randn(batch, 3, side, side), torch.randint(0, 10, (batch,))
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        medians = {}
        for layout in (torch.contiguous_format, torch.channels_last):
            model, x = model.to(memory_format=layout), x.contiguous(memory_format=layout)
            times = []
            for i in range(args.steps + 2):
                start = time.perf_counter()
                optimizer.zero_grad(set_to_none=True)
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                if i >= 2:
                    times.append(time.perf_counter() - start)
            medians[str(layout).removeprefix("torch.")] = statistics.median(times) * 1e3
        best = min(medians, key=medians.get)
        print(json.dumps({"workload": name, "torch": torch.__version__, "threads": args.threads, "layout": best,
                          "step_ms": round(medians[best], 2), "saved_bytes": saved_bytes(model, x, y)}), flush=True)


if __name__ == "__main__":
    main()
