"""What models of PyTorch save for the backward pass, whole and by frugal.torch.

usage: torch_saved.py [--bits 4 2] [--time] [--cpu] [MODEL ...]      needs frugal in PYTHONPATH, torch, and torchvision

Prints the bytes of one step, and with --time how long a step takes whole and compressed (medians of
alternating steps). --cpu takes the processor time of all threads instead of the time that passes,
which other programs disturb less (with OMP_WAIT_POLICY=passive, so that no thread spins).
"""

import argparse
import statistics
import time

import torch
from torch import nn

import frugal.torch as ft


class Encoder(nn.Module):
    """A TransformerEncoder of 4 layers, on embedded tokens."""

    def __init__(self, dropout):
        super().__init__()
        layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout, batch_first=True)
        self.embed = nn.Embedding(1000, 256)
        self.layers = nn.TransformerEncoder(layer, 4)
        self.last = nn.Linear(256, 10)

    def forward(self, x):
        return self.last(self.layers(self.embed(x)).mean(1))


class Gcn(nn.Module):
    """A graph network of 3 layers with a sparse matrix of neighbours."""

    def __init__(self, nodes):
        super().__init__()
        ends = torch.randint(0, nodes, (2, 8 * nodes))
        values = torch.full((8 * nodes,), 1 / 8)
        self.register_buffer("matrix", torch.sparse_coo_tensor(ends, values, (nodes, nodes)).coalesce())
        self.layers = nn.ModuleList([nn.Linear(128, 256), nn.Linear(256, 256), nn.Linear(256, 10)])

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = torch.sparse.mm(self.matrix, layer(x))
            if i < 2:
                x = nn.functional.dropout(torch.relu(x), 0.5)
        return x


def pictures(name, batch, size):
    import torchvision.models as models

    return getattr(models, name)(weights=None), torch.randn(batch, 3, size, size)


class Segmenter(nn.Module):
    """A network of torchvision for segmentation: its outputs are a dict."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return self.network(x)["out"]


class Detector(nn.Module):
    """A detector of torchvision with boxes for each picture: the sum of its losses."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        boxes = torch.tensor([[20.0, 20.0, 100.0, 120.0], [60.0, 50.0, 180.0, 160.0]])
        targets = [{"boxes": boxes, "labels": torch.tensor([1, 2])} for _ in x]
        return sum(self.network(list(x), targets).values()).view(1, 1)


def segmentation(name, batch, size):
    import torchvision.models as models

    return Segmenter(getattr(models.segmentation, name)(**WITHOUT_WEIGHTS)), torch.randn(batch, 3, size, size)


def detection(name, batch, size):
    import torchvision.models as models

    network = getattr(models.detection, name)(**WITHOUT_WEIGHTS, min_size=size, max_size=size)
    return Detector(network), torch.rand(batch, 3, size, size)


WITHOUT_WEIGHTS = {"weights": None, "weights_backbone": None, "num_classes": 21}
MODELS = {
    "resnet18": lambda: pictures("resnet18", 8, 128),
    "resnet50": lambda: pictures("resnet50", 4, 128),
    "densenet121": lambda: pictures("densenet121", 4, 128),
    "mobilenet_v3_large": lambda: pictures("mobilenet_v3_large", 8, 128),
    "vit_b_16": lambda: pictures("vit_b_16", 2, 224),
    "swin_t": lambda: pictures("swin_t", 2, 224),
    "fcn_resnet50": lambda: segmentation("fcn_resnet50", 2, 128),
    "retinanet": lambda: detection("retinanet_resnet50_fpn", 2, 256),
    "encoder": lambda: (Encoder(0.1), torch.randint(0, 1000, (16, 128))),
    "encoder without dropout": lambda: (Encoder(0.0), torch.randint(0, 1000, (16, 128))),
    "gcn": lambda: (Gcn(4000), torch.randn(4000, 128)),
}


class Loss(nn.Module):
    """The cross-entropy with the first class; what is a loss already stays."""

    def forward(self, out):
        if out.numel() == 1:
            return out.sum()
        return nn.functional.cross_entropy(out, torch.zeros_like(out[:, 0], dtype=torch.int64))


LOSS = Loss()


clock = time.perf_counter


def step(model, x):
    begun = clock()
    LOSS(model(x)).backward()
    model.zero_grad()
    return clock() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bits", type=int, nargs="+", default=[4, 2])
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--why", action="store_true", help="says by what a tensor stayed whole")
    parser.add_argument("models", nargs="*")
    arguments = parser.parse_args()
    if arguments.cpu:
        global clock
        clock = time.process_time
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for name in arguments.models or MODELS:
        torch.manual_seed(0)
        model, x = MODELS[name]()
        for bits in arguments.bits:
            context = ft.compress([model, LOSS], bits=bits)
            with context as memory:
                step(model, x)
            line = f"{name}, {bits} bits: {memory.saved} bytes, kept {memory.kept}, {memory.ratio:.2f} times less"
            if arguments.time:
                plain, packed, packing = [], [], []
                for _ in range(arguments.rounds):
                    plain.append(step(model, x))
                    with context as memory:
                        packed.append(step(model, x))
                    packing.append(memory.pack_seconds / packed[-1])
                line += (
                    f"; step {statistics.median(packed) / statistics.median(plain):.3f} of the whole one, "
                    f"packing {100 * statistics.median(packing):.1f} % of it"
                )
            print(line, flush=True)
            if arguments.why:
                for why, size in sorted(memory.whole.items(), key=lambda one: -one[1]):
                    print(f"    {size} bytes whole: {why}")


if __name__ == "__main__":
    main()
