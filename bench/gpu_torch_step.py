#!/usr/bin/python3
"""One PyTorch training step on a GPU: median time, the bytes autograd saves, and the peak. One JSON line.

usage: gpu_torch_step.py --workload resnet50 --precision tf32|bf16 [--variant eager|compile|checkpoint|int8|int4] [--batch N]
needs: PyTorch 2 and torchvision. --device cpu tries the script itself.

resnet50, resnet152: torchvision's, 224 px; bert_base, bert_large: embeddings, layer norm, nn.TransformerEncoder (gelu, norm after),
pooler and classifier; gpt2: pre-norm blocks with causal attention and a tied head; gcn: 3 layers, 256 wide, on a random graph as large
as ogbn-arxiv. bf16: autocast over f32 parameters. checkpoint: every block is recomputed. int8, int4: a saved-tensors hook that packs
floating tensors of at least 4096 elements in groups of 256, minimum and scale, rounded to nearest.
"""
import argparse
import contextlib
import json
import statistics
import time

import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def recomputed(block, x, on):
    return checkpoint(block, x, use_reentrant=False) if on else block(x)


class ResNet(nn.Module):
    def __init__(self, depth, recompute):
        super().__init__()
        self.net, self.recompute = getattr(torchvision.models, f"resnet{depth}")(), recompute

    def forward(self, x):
        net = self.net
        x = net.maxpool(net.relu(net.bn1(net.conv1(x))))
        for stage in (net.layer1, net.layer2, net.layer3, net.layer4):
            for block in stage:
                x = recomputed(block, x, self.recompute)
        return net.fc(torch.flatten(net.avgpool(x), 1))


class Bert(nn.Module):
    def __init__(self, layers, width, heads, recompute, vocabulary=30522, positions=512):
        super().__init__()
        self.words, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.norm, self.recompute = nn.LayerNorm(width, 1e-12), recompute
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.1, activation="gelu", batch_first=True)
            for _ in range(layers))
        self.pooler, self.classifier = nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, ids):
        at = torch.arange(ids.shape[1], device=ids.device)
        x = F.dropout(self.norm(self.words(ids) + self.positions(at)), 0.1, self.training)
        for block in self.blocks:
            x = recomputed(block, x, self.recompute)
        return self.classifier(F.dropout(torch.tanh(self.pooler(x[:, 0])), 0.1, self.training))


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1 if self.training else 0)
        x = x + F.dropout(self.out(y.transpose(1, 2).reshape(n, t, c)), 0.1, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")), 0.1, self.training)


class Gpt2(nn.Module):
    def __init__(self, recompute, layers=12, width=768, heads=12, vocabulary=50257, context=1024):
        super().__init__()
        self.words, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(GptBlock(width, heads) for _ in range(layers))
        self.norm, self.recompute = nn.LayerNorm(width), recompute

    def forward(self, ids):
        at = torch.arange(ids.shape[1], device=ids.device)
        x = F.dropout(self.words(ids) + self.positions(at), 0.1, self.training)
        for block in self.blocks:
            x = recomputed(block, x, self.recompute)
        return F.linear(self.norm(x), self.words.weight).flatten(0, 1)


class SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, matrix, transposed):
        ctx.transposed = transposed
        return torch.sparse.mm(matrix, x)

    @staticmethod
    def backward(ctx, dy):
        return torch.sparse.mm(ctx.transposed, dy), None, None


class Gcn(nn.Module):
    def __init__(self, device, nodes=169343, edges=1166243, widths=(128, 256, 256, 40)):
        super().__init__()
        ends = torch.randint(0, nodes, (2, edges))
        index = torch.cat([ends, ends.flip(0), torch.arange(nodes).repeat(2, 1)], 1)
        matrix = torch.sparse_coo_tensor(index, torch.rand(index.shape[1]), (nodes, nodes)).coalesce()
        self.matrix, self.transposed = matrix.to_sparse_csr().to(device), matrix.t().coalesce().to_sparse_csr().to(device)
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.norms = nn.ModuleList(nn.BatchNorm1d(w) for w in widths[1:-1])

    def forward(self, x):
        for i, linear in enumerate(self.linears):
            x = SparseProduct.apply(linear(x).float(), self.matrix, self.transposed)
            if i < len(self.norms):
                x = F.dropout(F.relu(self.norms[i](x)), 0.5, self.training)
        return x


def images(batch):
    return torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,))


def sentences(batch, length):
    return torch.randint(0, 30522, (batch, length)), torch.randint(0, 2, (batch,))


def text(batch, length=1024):
    return torch.randint(0, 50257, (batch, length)), torch.randint(0, 50257, (batch * length,))


# model(recompute, device), data(batch), the batch of the figures
WORKLOADS = {
    "resnet50": (lambda again, _: ResNet(50, again), images, 256),
    "resnet152": (lambda again, _: ResNet(152, again), images, 64),
    "bert_base_128": (lambda again, _: Bert(12, 768, 12, again), lambda n: sentences(n, 128), 32),
    "bert_base_512": (lambda again, _: Bert(12, 768, 12, again), lambda n: sentences(n, 512), 32),
    "bert_large_128": (lambda again, _: Bert(24, 1024, 16, again), lambda n: sentences(n, 128), 32),
    "bert_large_512": (lambda again, _: Bert(24, 1024, 16, again), lambda n: sentences(n, 512), 32),
    "gpt2": (lambda again, _: Gpt2(again), text, 16),
    "gcn": (lambda again, device: Gcn(device), lambda n: (torch.randn(169343, 128), torch.randint(0, 40, (169343,))), 169343),
}


class Packed:
    """A tensor in groups of 256 values of `bits` bits."""

    def __init__(self, x, bits):
        self.shape, self.dtype, self.bits, self.n = x.shape, x.dtype, bits, x.numel()
        groups = F.pad(x.detach().reshape(-1).float(), (0, -self.n % 256)).view(-1, 256)
        self.low = groups.amin(1, keepdim=True)
        self.step = (groups.amax(1, keepdim=True) - self.low).clamp_min(1e-12) / (2**bits - 1)
        codes = ((groups - self.low) / self.step).round_().to(torch.uint8)
        self.codes = codes[:, ::2] | codes[:, 1::2] << 4 if bits == 4 else codes

    def tensor(self):
        codes = torch.stack((self.codes & 15, self.codes >> 4), 2).flatten(1) if self.bits == 4 else self.codes
        return (codes.float() * self.step + self.low).view(-1)[: self.n].view(self.shape).to(self.dtype)

    def bytes(self):
        return self.codes.numel() + 4 * (self.low.numel() + self.step.numel())


class Keeper:
    """Counts what autograd saves, parameters left out, and packs it where asked."""

    def __init__(self, model, bits=0):
        self.parameters, self.bits, self.kept = {p.data_ptr() for p in model.parameters()}, bits, {}

    def pack(self, x):
        if x.data_ptr() in self.parameters or x.layout != torch.strided:
            return x
        if self.bits and x.is_floating_point() and x.numel() >= 4096:
            packed = Packed(x, self.bits)
            self.kept[id(packed)] = packed.bytes()
            return packed
        key = x.data_ptr()
        self.kept[key] = max(self.kept.get(key, 0), x.numel() * x.element_size())
        return x

    @staticmethod
    def unpack(x):
        return x.tensor() if isinstance(x, Packed) else x

    def hooks(self):
        return torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", required=True, choices=sorted(WORKLOADS))
    parser.add_argument("--variant", default="eager", choices=["eager", "compile", "checkpoint", "int8", "int4"])
    parser.add_argument("--precision", default="tf32", choices=["f32", "tf32", "bf16"])
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--memory-limit", type=float, default=0, help="GiB")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    on_gpu = args.device == "cuda"
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.precision != "f32"
    torch.backends.cudnn.benchmark = True
    if args.memory_limit and on_gpu:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(args.memory_limit * 2**30 / total)
    make, draw, usual = WORKLOADS[args.workload]
    batch = args.batch or usual
    model = make(args.variant == "checkpoint", args.device).to(args.device)
    x, y = (t.to(args.device) for t in draw(batch))
    if x.dim() == 4:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    adam = args.workload.startswith(("bert", "gpt"))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=on_gpu) if adam else torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    forward = torch.compile(model) if args.variant == "compile" else model
    mixed = torch.autocast(args.device, torch.bfloat16) if args.precision == "bf16" else contextlib.nullcontext()
    bits = {"int8": 8, "int4": 4}.get(args.variant, 0)

    def loss(keeper=None):
        with mixed, keeper.hooks() if keeper else contextlib.nullcontext():
            return F.cross_entropy(forward(x), y)

    times, peak = [], 0
    for i in range(args.steps + 3):
        if on_gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss(Keeper(model, bits) if bits else None).backward()
        optimizer.step()
        if on_gpu:
            torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated()
        if i >= 3:
            times.append(time.perf_counter() - start)
    saved = 0
    if args.variant != "compile":  # its saved tensors are chosen by the compiler; the peak shows them
        keeper = Keeper(model, bits)
        loss(keeper)
        saved = sum(keeper.kept.values())
    step = statistics.median(times)
    print(json.dumps({"workload": args.workload, "variant": args.variant, "precision": args.precision, "batch": batch,
                      "torch": torch.__version__, "step_ms": round(step * 1e3, 3), "samples_per_s": round(batch / step, 2),
                      "saved_bytes": saved, "peak_bytes": peak}), flush=True)


if __name__ == "__main__":
    main()
