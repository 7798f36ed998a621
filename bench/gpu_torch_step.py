#!/usr/bin/env python3
"""One PyTorch training step on a GPU: median time, the bytes autograd saves, and the peak. One JSON line.

usage: gpu_torch_step.py --workload resnet50 --precision tf32|bf16 [--variant eager|compile|checkpoint|int8|int4] [--batch N]
needs: PyTorch 2, for ResNets torchvision. --device cpu tries the script itself.

resnet50, resnet152: torchvision's, 224 px; bert_base, bert_large: embeddings, layer norm, blocks with the norm after (fused
projections, scaled_dot_product_attention, gelu), the last of them for the first token alone, pooler and classifier; gpt2: pre-norm
blocks with causal attention and a tied head; gcn: 3 layers, 256 wide, on a random graph as dense as ogbn-arxiv, whose nodes are the
batch. bf16: autocast over f32 parameters. checkpoint: every block is recomputed, of gcn every layer. int8, int4: a saved-tensors hook
that packs floating tensors of at least 4096 elements in groups of 256, minimum and scale, rounded to nearest.
Saved bytes leave out parameters, their bf16 copies and the batch. cuDNN's benchmark is on.
"""
import argparse
import contextlib
import functools
import json
import statistics
import time

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

WARM_UP = 3


def recomputed(block, x, on):
    return checkpoint(block, x, use_reentrant=False) if on else block(x)


class ResNet(nn.Module):
    def __init__(self, depth, recompute):
        super().__init__()
        import torchvision

        self.net, self.recompute = getattr(torchvision.models, f"resnet{depth}")(), recompute

    def forward(self, x):
        net = self.net
        x = net.maxpool(net.relu(net.bn1(net.conv1(x))))
        for stage in (net.layer1, net.layer2, net.layer3, net.layer4):
            for block in stage:
                x = recomputed(block, x, self.recompute)
        return net.fc(torch.flatten(net.avgpool(x), 1))


def attention(q, k, v, heads, causal, dropout):
    """Of [N, T, C] each."""
    q, k, v = (t.view(t.shape[0], t.shape[1], heads, -1).transpose(1, 2) for t in (q, k, v))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, dropout_p=dropout)
    return y.transpose(1, 2).flatten(2)


class BertBlock(nn.Module):
    def __init__(self, width, heads, first_only):
        super().__init__()
        self.heads, self.first_only = heads, first_only
        if first_only:
            self.q, self.kv = nn.Linear(width, width), nn.Linear(width, 2 * width)
        else:
            self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-12), nn.LayerNorm(width, 1e-12)

    def forward(self, x):
        if self.first_only:
            k, v = self.kv(x).chunk(2, 2)
            x = x[:, :1]
            q = self.q(x)
        else:
            q, k, v = self.qkv(x).chunk(3, 2)
        y = self.out(attention(q, k, v, self.heads, False, 0.1 if self.training else 0))
        x = self.norm1(x + F.dropout(y, 0.1, self.training))
        return self.norm2(x + F.dropout(self.down(F.gelu(self.up(x))), 0.1, self.training))


class Bert(nn.Module):
    def __init__(self, layers, width, heads, recompute, vocabulary=30522, positions=512):
        super().__init__()
        self.heads = heads
        self.words, self.positions, self.types = (nn.Embedding(rows, width) for rows in (vocabulary, positions, 2))
        self.norm, self.recompute = nn.LayerNorm(width, 1e-12), recompute
        self.blocks = nn.ModuleList(BertBlock(width, heads, i == layers - 1) for i in range(layers))
        self.pooler, self.classifier = nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, ids):
        at = torch.arange(ids.shape[1], device=ids.device)
        x = self.words(ids) + self.positions(at) + self.types(torch.zeros_like(at))
        x = F.dropout(self.norm(x), 0.1, self.training)
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
        q, k, v = self.qkv(self.norm1(x)).chunk(3, 2)
        y = self.out(attention(q, k, v, self.heads, True, 0.1 if self.training else 0))
        x = x + F.dropout(y, 0.1, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")), 0.1, self.training)


class Gpt2(nn.Module):
    def __init__(self, recompute, layers=12, width=768, heads=12, vocabulary=50257, context=1024):
        super().__init__()
        self.heads = heads
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
    def __init__(self, device, nodes, recompute, widths=(128, 256, 256, 40)):
        super().__init__()
        self.recompute = recompute
        ends = torch.randint(0, nodes, (2, nodes * 1166243 // 169343))
        index = torch.cat([ends, ends.flip(0), torch.arange(nodes).repeat(2, 1)], 1)
        matrix = torch.sparse_coo_tensor(index, torch.rand(index.shape[1]), (nodes, nodes)).coalesce()
        self.matrix, self.transposed = matrix.to_sparse_csr().to(device), matrix.t().coalesce().to_sparse_csr().to(device)
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.norms = nn.ModuleList(nn.BatchNorm1d(w) for w in widths[1:-1])

    def layer(self, i, x):
        x = SparseProduct.apply(self.linears[i](x).float(), self.matrix, self.transposed)
        return F.dropout(F.relu(self.norms[i](x)), 0.5, self.training) if i < len(self.norms) else x

    def forward(self, x):
        for i in range(len(self.linears)):
            x = recomputed(functools.partial(self.layer, i), x, self.recompute)
        return x


def images(batch):
    return torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,))


def sentences(batch, length):
    return torch.randint(0, 30522, (batch, length)), torch.randint(0, 2, (batch,))


def text(batch, length=1024):
    return torch.randint(0, 50257, (batch, length)), torch.randint(0, 50257, (batch * length,))


def nodes(batch):
    return torch.randn(batch, 128), torch.randint(0, 40, (batch,))


# model(recompute, device, batch), data(batch)
WORKLOADS = {
    "resnet50": (lambda again, *_: ResNet(50, again), images),
    "resnet152": (lambda again, *_: ResNet(152, again), images),
    "bert_base_128": (lambda again, *_: Bert(12, 768, 12, again), lambda n: sentences(n, 128)),
    "bert_base_512": (lambda again, *_: Bert(12, 768, 12, again), lambda n: sentences(n, 512)),
    "bert_large_128": (lambda again, *_: Bert(24, 1024, 16, again), lambda n: sentences(n, 128)),
    "bert_large_512": (lambda again, *_: Bert(24, 1024, 16, again), lambda n: sentences(n, 512)),
    "gpt2": (lambda again, *_: Gpt2(again), text),
    "gcn": (lambda again, device, n: Gcn(device, n, again), nodes),
}


def is_dense(x):
    """Does every element of its range of memory belong to it, once?"""
    expected = 1
    for stride, size in sorted(zip(x.stride(), x.shape)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


class Packed:
    """A tensor in groups of 256 values, neighbours in memory, of `bits` bits."""

    def __init__(self, x, bits):
        x = x.detach()
        if not is_dense(x):
            x = x.contiguous()
        self.shape, self.strides, self.dtype, self.bits, self.n = x.shape, x.stride(), x.dtype, bits, x.numel()
        flat = x.as_strided((self.n,), (1,)).float()
        groups = F.pad(flat, (0, -self.n % 256)).view(-1, 256)
        self.low = groups.amin(1, keepdim=True)
        self.step = (groups.amax(1, keepdim=True) - self.low).clamp_min(1e-12) / (2**bits - 1)
        codes = ((groups - self.low) / self.step).round_().to(torch.uint8)
        self.codes = codes[:, ::2] | codes[:, 1::2] << 4 if bits == 4 else codes

    def tensor(self):
        codes = torch.stack((self.codes & 15, self.codes >> 4), 2).flatten(1) if self.bits == 4 else self.codes
        flat = (codes.float() * self.step + self.low).view(-1)[: self.n].to(self.dtype)
        return flat.as_strided(self.shape, self.strides)

    def bytes(self):
        return self.codes.numel() + 4 * (self.low.numel() + self.step.numel())


class Free:
    """Which of a step's saved tensors lie in memory anyway: parameters and the batch, and casts of them. Told once by comparing values;
    afterwards by their places among the saved tensors, which are those of every step."""

    def __init__(self, model, batch):
        self.kept = [p.detach() for p in model.parameters()] + list(batch)
        self.pointers, self.places, self.count = {t.data_ptr() for t in self.kept}, set(), 0

    def is_cast(self, x):
        for t in self.kept:
            if t.is_floating_point() and t.dtype != x.dtype and t.numel() == x.numel():
                y = x if x.shape == t.shape else x.t() if x.dim() == 2 else None
                if y is not None and y.shape == t.shape and torch.equal(y, t.to(y.dtype)):
                    return True
        return False

    def look(self, x):
        if x.layout == torch.strided and x.is_floating_point() and self.is_cast(x.detach()):
            self.places.add(self.count)
        self.count += 1
        return x


class Keeper:
    """Counts what autograd saves and packs it where asked, but for what is free and attention's sums of exponentials. A tensor that
    several functions save is packed once."""

    def __init__(self, free, heads, bits=0):
        self.free, self.heads, self.bits, self.kept, self.count, self.seen = free, heads, bits, {}, 0, {}

    def packed(self, x):
        key = (x.data_ptr(), x._version, x.dtype, x.shape, x.stride())
        storage, packed = self.seen.get(key, (None, None))
        if storage is None or storage.expired():
            packed = Packed(x, self.bits)
            self.seen[key] = StorageWeakRef(x.untyped_storage() if hasattr(x, "untyped_storage") else x.storage()), packed
            self.kept[id(packed)] = packed.bytes()
        return packed

    def pack(self, x):
        place, self.count = self.count, self.count + 1
        if x.data_ptr() in self.free.pointers or place in self.free.places or x.layout != torch.strided:
            return x
        sums = x.dim() == 3 and x.shape[1] == self.heads
        if self.bits and x.is_floating_point() and x.numel() >= 4096 and not sums:
            return self.packed(x)
        key = x.data_ptr()
        self.kept[key] = max(self.kept.get(key, 0), x.numel() * x.element_size())
        return x

    @staticmethod
    def unpack(x):
        return x.tensor() if isinstance(x, Packed) else x


def optimizer_of(model, workload, on_gpu):
    fused = {"fused": True} if on_gpu else {}
    if workload.startswith(("bert", "gpt")):
        return torch.optim.AdamW(model.parameters(), 1e-4, **fused)
    try:
        return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, **fused)
    except TypeError:  # before PyTorch 2.3
        return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", required=True, choices=sorted(WORKLOADS))
    parser.add_argument("--variant", default="eager", choices=["eager", "compile", "checkpoint", "int8", "int4"])
    parser.add_argument("--precision", default="tf32", choices=["f32", "tf32", "bf16"])
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    on_gpu = args.device == "cuda"
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.precision != "f32"
    torch.backends.cudnn.benchmark = True
    make, draw = WORKLOADS[args.workload]
    model = make(args.variant == "checkpoint", args.device, args.batch).to(args.device)
    x, y = (t.to(args.device) for t in draw(args.batch))
    if x.dim() == 4:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    optimizer = optimizer_of(model, args.workload, on_gpu)
    forward = torch.compile(model) if args.variant == "compile" else model
    bits = {"int8": 8, "int4": 4}.get(args.variant, 0)
    # Which saved tensors are casts of what is there anyway is seen with a batch of 2, where there are batches.
    few = args.batch if args.workload == "gcn" else min(args.batch, 2)
    small = x[:few], y[: few * len(y) // len(x)]
    free, heads = Free(model, (x, y, *small)), getattr(model, "heads", 0)

    def loss(pack=None, unpack=lambda t: t, x=x, y=y):
        mixed = torch.autocast(args.device, torch.bfloat16) if args.precision == "bf16" else contextlib.nullcontext()
        hooks = torch.autograd.graph.saved_tensors_hooks(pack, unpack) if pack else contextlib.nullcontext()
        with mixed, hooks:
            return F.cross_entropy(forward(x), y)

    def step():
        optimizer.zero_grad(set_to_none=True)
        if bits:
            loss(Keeper(free, heads, bits).pack, Keeper.unpack).backward()
        else:
            loss().backward()
        optimizer.step()

    saved = None
    if args.precision == "bf16" and args.variant != "compile":
        loss(free.look, x=small[0], y=small[1])
    times, peak = [], 0
    for i in range(WARM_UP + args.steps):
        if on_gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        step()
        if on_gpu:
            torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated()
        if i >= WARM_UP:
            times.append(time.perf_counter() - start)
    reserved = torch.cuda.memory_reserved() if on_gpu else 0
    if args.variant != "compile":  # its saved tensors are chosen by the compiler; the peak shows them
        keeper = Keeper(free, heads, bits)
        kept = loss(keeper.pack, Keeper.unpack)  # alive, so that no two share an address
        saved = sum(keeper.kept.values())
        del kept
    median = statistics.median(times)
    print(json.dumps({"workload": args.workload, "variant": args.variant, "precision": args.precision, "batch": args.batch,
                      "torch": torch.__version__, "cudnn_benchmark": torch.backends.cudnn.benchmark, "step_ms": round(median * 1e3, 3),
                      "saved_bytes": saved, "peak_bytes": peak, "reserved_bytes": reserved}), flush=True)


if __name__ == "__main__":
    main()
