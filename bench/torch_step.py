#!/usr/bin/env python3
"""One PyTorch training step on CPU: median time in both memory layouts and the bytes autograd saves. One JSON line a workload.

usage: torch_step.py [--steps 7] [--threads 2] [--autocast] r20|r18|r50|bert|gcn|lora|fcn|deeplab|retinanet ...
       torch_step.py --peak [--batch 8] [--side 256] r50|fcn|deeplab|retinanet
needs: Debian's python3-torch and python3-torchvision

r20: CIFAR ResNet-20 with projection shortcuts, batch 128, 3x32x32; r18: ResNet-18 with a 3x3 stem, batch 32, 3x32x32;
r50: torchvision's ResNet-50, batch 4, 3x224x224. SGD with momentum.
bert: nn.TransformerEncoder of 4 layers, 256 wide, 4 heads, on word embeddings, batch 32, length 128. AdamW.
gcn: 3 layers, 256 wide, with batch norm and dropout, on a random graph as large as ogbn-arxiv. SGD with momentum.
lora: a decoder with TinyLlama's shapes in 4 layers, 2 texts of 512 tokens. LoRA of rank 16 on all linear layers but the head, written by
hand; everything else is frozen. AdamW. "resident_mib" is the highest resident memory of the process.
The same models as `frugal bench step --workload`. Saved bytes leave out parameters; "input_bytes" says how many are the batch's own.
fcn, deeplab, retinanet: torchvision's fcn_resnet50 and deeplabv3_resnet50 with 21 classes and retinanet_resnet50_fpn with 91, nothing frozen, batch 8, 3x256x256. SGD with momentum.

--autocast: forward passes under torch.autocast in bf16. The loss is computed in f32.

--peak measures the memory of a step instead, for one workload in a fresh process:
  tensor_peak: the highest sum of what PyTorch's allocator has given out, with parameters, momentum and the batch, as its profiler tells.
               What oneDNN takes for itself is not in it.
  resident_peak: the highest resident memory after three steps, less that when the model was built, plus the bytes of its parameters.
"""
import argparse
import json
import resource
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


class Encoder(nn.Module):
    def __init__(self, vocabulary=30522, width=256):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        block = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, activation="gelu", batch_first=True)
        self.blocks = nn.TransformerEncoder(block, 4)
        self.classifier = nn.Linear(width, 2)

    def forward(self, ids):
        return self.classifier(self.blocks(self.words(ids))[:, 0])


class SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, matrix, transposed):
        ctx.transposed = transposed
        return matrix @ x

    @staticmethod
    def backward(ctx, dy):
        return ctx.transposed @ dy, None, None


class GraphNet(nn.Module):
    def __init__(self, nodes=169343, edges=1166243, widths=(128, 256, 256, 40)):
        super().__init__()
        ends = torch.randint(0, nodes, (2, edges))
        loops = torch.arange(nodes).repeat(2, 1)
        index = torch.cat([ends, ends.flip(0), loops], 1)
        matrix = torch.sparse_coo_tensor(index, torch.rand(index.shape[1]), (nodes, nodes)).coalesce()
        self.matrix, self.transposed = matrix.to_sparse_csr(), matrix.t().coalesce().to_sparse_csr()
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.norms = nn.ModuleList(nn.BatchNorm1d(w) for w in widths[1:-1])

    def forward(self, x):
        for i, linear in enumerate(self.linears):
            x = SparseProduct.apply(linear(x), self.matrix, self.transposed)
            if i < len(self.norms):
                x = F.dropout(F.relu(self.norms[i](x)), 0.5, self.training)
        return x


class Lora(nn.Module):
    """A frozen product, and A and B of rank `rank` beside it."""

    def __init__(self, size_in, size_out, rank=16, alpha=32):
        super().__init__()
        self.base = nn.Linear(size_in, size_out, bias=False)
        self.base.weight.requires_grad_(False)
        self.a, self.b = nn.Linear(size_in, rank, bias=False), nn.Linear(rank, size_out, bias=False)
        nn.init.zeros_(self.b.weight)
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * self.b(self.a(x))


class RmsNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width), requires_grad=False), eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class DecoderLayer(nn.Module):
    def __init__(self, width, inner, heads, shared):
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.q, self.o = Lora(width, width), Lora(width, width)
        self.k, self.v = Lora(width, shared * self.size), Lora(width, shared * self.size)
        self.gate, self.up, self.down = Lora(width, inner), Lora(width, inner), Lora(inner, width)

    def rotated(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    def forward(self, x, cos, sin):
        batch, tokens, width = x.shape
        h = self.norm1(x)

        def split(y, heads):
            return y.view(batch, tokens, heads, self.size).transpose(1, 2)

        q, k = self.rotated(split(self.q(h), self.heads), cos, sin), self.rotated(split(self.k(h), self.shared), cos, sin)
        v, times = split(self.v(h), self.shared), self.heads // self.shared
        k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, tokens, width))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Decoder(nn.Module):
    def __init__(self, vocabulary=32000, width=2048, inner=5632, heads=32, shared=4, layers=4):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(DecoderLayer(width, inner, heads, shared) for _ in range(layers))
        self.norm, self.head = RmsNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.words.requires_grad_(False)
        self.head.requires_grad_(False)
        self.steps = 1e4 ** (-torch.arange(0, width // heads, 2) / (width // heads))

    def forward(self, ids):
        angles = torch.arange(ids.shape[1])[:, None] * self.steps
        angles = torch.cat([angles, angles], -1)
        x, cos, sin = self.words(ids), angles.cos(), angles.sin()
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x)).flatten(0, 1)


def texts(batch, tokens):
    return torch.randint(0, 32000, (batch, tokens)), torch.randint(0, 32000, (batch * tokens,))


def images(batch, side):
    return torch.randn(batch, 3, side, side), torch.randint(0, 10, (batch,))


def masks(batch, side):
    return torch.randn(batch, 3, side, side), torch.randint(0, 21, (batch, side, side))


def boxes(batch, side):
    def objects():
        corner, extent = torch.rand(8, 2) * side / 2, side / 8 + torch.rand(8, 2) * side / 4
        return {"boxes": torch.cat([corner, corner + extent], 1), "labels": torch.randint(1, 91, (8,))}

    return torch.rand(batch, 3, side, side), [objects() for _ in range(batch)]


def fcn():
    return torchvision.models.segmentation.fcn_resnet50(weights_backbone=None, num_classes=21, aux_loss=False)


def deeplab():
    return torchvision.models.segmentation.deeplabv3_resnet50(weights_backbone=None, num_classes=21, aux_loss=False)


def retinanet():
    return torchvision.models.detection.retinanet_resnet50_fpn(weights_backbone=None, num_classes=91, trainable_backbone_layers=5)


autocast = False


def loss_of(model, x, y):
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        if isinstance(y, list):
            model.transform.min_size, model.transform.max_size = (x.shape[2],), x.shape[2]
            return sum(model(list(x), y).values())
        out = model(x)
    return F.cross_entropy((out["out"] if isinstance(out, dict) else out).float(), y)


def sgd(model):
    return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def adamw(model):
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3)


# model, input and target, optimizer
WORKLOADS = {
    "r20": (lambda: small_image_resnet([16, 32, 64], [3, 3, 3]), lambda: images(128, 32), sgd),
    "r18": (lambda: small_image_resnet([64, 128, 256, 512], [2, 2, 2, 2]), lambda: images(32, 32), sgd),
    "r50": (lambda: torchvision.models.resnet50(), lambda: images(4, 224), sgd),
    "bert": (Encoder, lambda: (torch.randint(0, 30522, (32, 128)), torch.randint(0, 2, (32,))), adamw),
    "gcn": (GraphNet, lambda: (torch.randn(169343, 128), torch.randint(0, 40, (169343,))), sgd),
    "lora": (Decoder, lambda: texts(2, 512), adamw),
    "fcn": (fcn, lambda: masks(8, 256), sgd),
    "deeplab": (deeplab, lambda: masks(8, 256), sgd),
    "retinanet": (retinanet, lambda: boxes(8, 256), sgd),
}
# Each takes a batch and a side.
DRAWS = {"r50": images, "fcn": masks, "deeplab": masks, "retinanet": boxes}


def saved_bytes(model, x, y):
    """Bytes of distinct storages that autograd keeps, parameters left out."""
    parameters = {p.data_ptr() for p in model.parameters()}
    kept = {}

    def pack(t):
        if t.data_ptr() not in parameters:
            kept[t.data_ptr()] = max(kept.get(t.data_ptr(), 0), t.numel() * t.element_size())
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        loss_of(model, x, y)
    return sum(kept.values())


def bytes_of(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def step(model, optimizer, x, y):
    optimizer.zero_grad(set_to_none=True)
    loss_of(model, x, y).backward()
    optimizer.step()


def resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def peak(name, batch, side):
    torch.manual_seed(0)
    model = WORKLOADS[name][0]().to(memory_format=torch.channels_last)
    optimizer = WORKLOADS[name][2](model)
    parameters = bytes_of(model.parameters())
    built = resident()
    x, y = DRAWS[name](batch, side)
    x = x.contiguous(memory_format=torch.channels_last)
    for _ in range(3):
        step(model, optimizer, x, y)
    grown = resident() - built
    optimizer.zero_grad(set_to_none=True)
    held = 2 * parameters + bytes_of([x]) + bytes_of(model.buffers())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step(model, optimizer, x, y)
    changes = [(e.start_us(), e.nbytes()) for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = most = 0
    for _, change in sorted(changes, key=lambda each: each[0]):
        live += change
        most = max(most, live)
    print(json.dumps({"workload": name, "torch": torch.__version__, "batch": batch, "side": side, "parameter_bytes": parameters,
                      "tensor_peak": held + most, "resident_peak": grown + parameters, "saved_bytes": saved_bytes(model, x, y)}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", choices=sorted(WORKLOADS))
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--autocast", action="store_true")
    parser.add_argument("--peak", action="store_true")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--side", type=int, default=256)
    args = parser.parse_args()
    global autocast
    autocast = args.autocast
    torch.set_num_threads(args.threads)
    if args.peak:
        if len(args.names) != 1 or args.names[0] not in DRAWS:
            parser.error(f"--peak: expected one of {', '.join(DRAWS)}")
        return peak(args.names[0], args.batch, args.side)
    for name in args.names:
        torch.manual_seed(0)
        make, draw, optimize = WORKLOADS[name]
        model, (x, y) = make(), draw()
        optimizer = optimize(model)
        medians = {}
        for layout in (torch.contiguous_format, torch.channels_last) if x.dim() == 4 else (torch.contiguous_format,):
            if x.dim() == 4:
                model, x = model.to(memory_format=layout), x.contiguous(memory_format=layout)
            times = []
            for i in range(args.steps + 2):
                start = time.perf_counter()
                step(model, optimizer, x, y)
                if i >= 2:
                    times.append(time.perf_counter() - start)
            medians[str(layout).removeprefix("torch.")] = statistics.median(times) * 1e3
        best = min(medians, key=medians.get)
        print(json.dumps({"workload": name, "torch": torch.__version__, "threads": args.threads, "layout": best,
                          "step_ms": round(medians[best], 2), "resident_mib": resident() >> 20, "saved_bytes": saved_bytes(model, x, y), "input_bytes": x.numel() * x.element_size()}), flush=True)


if __name__ == "__main__":
    main()
