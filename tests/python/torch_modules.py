"""The modules of torch.nn that save floats, and the mean of their gradients over many roundings.

usage: torch_modules.py [BITS]      prints a table
"""

import math
import sys

import torch
from torch import nn

import frugal.torch as ft


class Call(nn.Module):
    """A module or function of several inputs as a module of one: the others are parameters."""

    def __init__(self, call, *others):
        super().__init__()
        self.call = call
        self.others = nn.ParameterList([nn.Parameter(one) for one in others])

    def forward(self, x):
        return self.call(x, *self.others)


def draw(*shape):
    return torch.randn(*shape)


def modules():
    """Name, module, and an input without which none of it would be measured."""
    picture, rows, line, block = (4, 8, 8, 8), (128, 16), (4, 8, 64), (2, 4, 6, 6, 6)
    cases = {
        "Conv1d": (nn.Conv1d(8, 8, 3), line),
        "Conv2d": (nn.Conv2d(8, 8, 3), picture),
        "Conv3d": (nn.Conv3d(4, 4, 3), block),
        "ConvTranspose1d": (nn.ConvTranspose1d(8, 8, 3), line),
        "ConvTranspose2d": (nn.ConvTranspose2d(8, 8, 3), picture),
        "ConvTranspose3d": (nn.ConvTranspose3d(4, 4, 3), block),
        "Linear": (nn.Linear(16, 16), rows),
        "Bilinear": (Call(nn.Bilinear(16, 16, 8), draw(*rows)), rows),
        "BatchNorm1d": (nn.BatchNorm1d(8), line),
        "BatchNorm2d": (nn.BatchNorm2d(8), picture),
        "BatchNorm3d": (nn.BatchNorm3d(4), block),
        "InstanceNorm2d": (nn.InstanceNorm2d(8, affine=True), picture),
        "GroupNorm": (nn.GroupNorm(2, 8), picture),
        "LayerNorm": (nn.LayerNorm(64), (32, 64)),
        "LocalResponseNorm": (nn.LocalResponseNorm(3), picture),
        "RNN": (Call(lambda x, m=nn.RNN(16, 16): m(x)[0]), (16, 8, 16)),
        "LSTM": (nn.Sequential(Call(Recurrent(nn.LSTM(16, 16)))), (16, 8, 16)),
        "GRU": (nn.Sequential(Call(Recurrent(nn.GRU(16, 16)))), (16, 8, 16)),
        "MultiheadAttention": (Attention(16, 2), (4, 32, 16)),
        "TransformerEncoderLayer": (
            nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True),
            (4, 32, 16),
        ),
        "TransformerEncoderLayer gelu": (
            nn.TransformerEncoderLayer(16, 2, 32, dropout=0, activation="gelu", batch_first=True),
            (4, 32, 16),
        ),
        "TransformerDecoderLayer": (
            Call(nn.TransformerDecoderLayer(16, 2, 32, batch_first=True), draw(4, 32, 16)),
            (4, 32, 16),
        ),
        "CosineSimilarity": (Call(nn.CosineSimilarity(), draw(*rows)), rows),
        "PairwiseDistance": (Call(nn.PairwiseDistance(), draw(*rows)), rows),
    }
    for module in (
        nn.ReLU(), nn.ReLU6(), nn.ELU(), nn.SELU(), nn.CELU(), nn.GELU(), nn.GELU("tanh"), nn.SiLU(),
        nn.Mish(), nn.Softplus(), nn.Softshrink(), nn.Hardshrink(), nn.Hardtanh(), nn.Hardsigmoid(),
        nn.Hardswish(), nn.LeakyReLU(0.1), nn.LogSigmoid(), nn.PReLU(), nn.RReLU(), nn.Sigmoid(),
        nn.Softsign(), nn.Tanh(), nn.Tanhshrink(), nn.Threshold(0.1, 2.0), nn.GLU(), nn.Softmin(-1),
        nn.Softmax(-1), nn.LogSoftmax(-1), nn.Dropout(), nn.AlphaDropout(),
    ):  # fmt: skip
        name = type(module).__name__
        if name == "GELU" and module.approximate == "tanh":
            name += " tanh"
        cases[name] = (module, (64, 64))
        # Behind it is a product, which saves its output.
        if name not in ("GLU",):
            cases[name + ", Linear"] = (nn.Sequential(module, nn.Linear(64, 16)), (64, 64))
    for module in (
        nn.ReLU(True), nn.ReLU6(True), nn.ELU(inplace=True), nn.SiLU(True), nn.Hardswish(True),
        nn.LeakyReLU(0.1, True), nn.Threshold(0.1, 2.0, True),
    ):  # fmt: skip
        before = nn.Conv2d(8, 8, 1)
        name = type(module).__name__ + " in place"
        cases[name] = (nn.Sequential(before, module, nn.Conv2d(8, 8, 1)), picture)
    for module in (
        nn.MaxPool1d(2), nn.AvgPool1d(2), nn.LPPool1d(2, 2), nn.AdaptiveAvgPool1d(4), nn.AdaptiveMaxPool1d(4),
    ):  # fmt: skip
        cases[type(module).__name__] = (module, line)
    for module in (
        nn.MaxPool2d(2), nn.MaxPool2d(3, 2, 1, dilation=2), nn.AvgPool2d(2), nn.LPPool2d(2, 2),
        nn.FractionalMaxPool2d(2, output_size=4, _random_samples=torch.full((4, 8, 2), 0.3)),
        nn.AdaptiveAvgPool2d(4), nn.AdaptiveMaxPool2d(4), nn.ReflectionPad2d(1), nn.ReplicationPad2d(1),
        nn.Upsample(scale_factor=2, mode="bilinear"), nn.Softmax2d(), nn.PixelShuffle(2),
    ):  # fmt: skip
        name = type(module).__name__
        cases[name if name not in cases else name + " with gaps"] = (
            nn.Sequential(nn.Conv2d(8, 8, 1), module), (4, 8, 12, 12))  # fmt: skip
    target = draw(*rows)
    classes = torch.arange(128) % 16
    for loss, wanted in (
        (nn.MSELoss(), target), (nn.L1Loss(), target), (nn.SmoothL1Loss(), target), (nn.HuberLoss(), target),
        (nn.BCEWithLogitsLoss(), target.sigmoid()), (nn.KLDivLoss(reduction="sum"), target.softmax(-1)),
        (nn.CrossEntropyLoss(), classes), (nn.CrossEntropyLoss(label_smoothing=0.1), classes),
        (nn.PoissonNLLLoss(), target.abs()), (nn.SoftMarginLoss(), target.sign()),
        (nn.MultiMarginLoss(), classes), (nn.MultiLabelSoftMarginLoss(), (target > 0).float()),
    ):  # fmt: skip
        name = type(loss).__name__
        cases[name if name not in cases else name + " smooth"] = (
            Call(lambda x, loss=loss, wanted=wanted: loss(x, wanted)), rows)  # fmt: skip
    return {name: (module, draw(*shape)) for name, (module, shape) in cases.items()}


class Recurrent(nn.Module):
    def __init__(self, of):
        super().__init__()
        self.of = of

    def forward(self, x):
        return self.of(x)[0]


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.of = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x):
        return self.of(x, x, x, need_weights=False)[0]


class Scaled(nn.Module):
    """The input is made by an op, as within a network: what is given to a network lives anyway."""

    def __init__(self, of):
        super().__init__()
        self.of = of
        self.one = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.of(x * self.one)


def gradients(network, x, weight, context):
    """All gradients in one row. What is drawn by the network itself is equal each time."""
    network.zero_grad()
    x = x.clone().requires_grad_()
    torch.manual_seed(5)
    if context is None:
        (network(x) * weight).sum().backward()
    else:
        with context:
            (network(x) * weight).sum().backward()
    found = [x.grad] + [p.grad for p in network.parameters() if p.grad is not None]
    return torch.cat([one.reshape(-1) for one in found]).double()


def study(module, x, bits, roundings=200, groups=8):
    """The ratio of bytes, the noise of one rounding and the squared bias over the squared gradient,
    and the squared bias in its standard errors."""
    network = Scaled(module)
    torch.manual_seed(5)
    weight = torch.randn_like(network(x))
    exact = gradients(network, x, weight, None)
    norm = float(exact.square().sum()) or 1.0
    context = ft.compress(network, bits=bits, min_elements=256)
    means, noise = [], 0.0
    for _ in range(groups):
        total = torch.zeros_like(exact)
        for _ in range(roundings // groups):
            error = gradients(network, x, weight, context) - exact
            noise += float(error.square().sum())
            total += error
        means.append(total / (roundings // groups))
    ratio = context.memory.ratio
    products = torch.stack(means) @ torch.stack(means).T

    def squared_bias(of):
        part = products[of][:, of]
        count = len(of)
        return float((part.sum() - part.diagonal().sum()) / (count * (count - 1)))

    everyone = list(range(groups))
    bias = squared_bias(everyone)
    left = [squared_bias([k for k in everyone if k != i]) for i in everyone]
    middle = sum(left) / groups
    error = math.sqrt((groups - 1) / groups * sum((one - middle) ** 2 for one in left))
    return ratio, noise / roundings / norm, bias / norm, bias / error if error > 0 else 0.0


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    bits = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    print("| module | saved bytes | noise | squared bias | in standard errors |")
    print("|---|---|---|---|---|")
    for name, (module, x) in modules().items():
        ratio, noise, bias, errors = study(module, x, bits)
        text = f"{noise:.1e} | {bias:.1e} | {errors:.1f}" if noise > 0 else "0 | 0 |"
        print(f"| {name} | {ratio:.1f}x | {text} |", flush=True)


if __name__ == "__main__":
    main()
