#!/usr/bin/env python3
"""What PyTorch's autograd saves for the graph networks of configs/cora_*.json, on a random graph of Cora's size. One JSON line each.

usage: torch_graph_bytes.py [gcn gat gcnii ...]      needs: Debian's python3-torch

gcn: 2 layers, 16 wide. gat: 2 layers, 8 heads of 8, elu; attention by edges, as PyTorch Geometric computes it. gcnii: 64 layers, 64 wide.
Bytes leave out parameters, the features, the graph, and what dropping features makes, which a run may hold in any form.
"""
import argparse
import json
import math

import torch
from torch import nn
from torch.nn import functional as F

from torch_step import SparseProduct, saved_bytes

NODES, EDGES, FEATURES, CLASSES, COUNTED = 2708, 5278, 1433, 7, 140


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        ends = torch.randint(0, NODES, (2, EDGES))
        self.index = torch.cat([ends, ends.flip(0), torch.arange(NODES).repeat(2, 1)], 1)
        matrix = torch.sparse_coo_tensor(self.index, torch.rand(self.index.shape[1]), (NODES, NODES)).coalesce()
        self.matrix, self.transposed = matrix.to_sparse_csr(), matrix.t().coalesce().to_sparse_csr()

    def product(self, x):
        return SparseProduct.apply(x, self.matrix, self.transposed)


class Gcn(Graph):
    def __init__(self):
        super().__init__()
        self.lins = nn.ModuleList([nn.Linear(FEATURES, 16), nn.Linear(16, CLASSES)])

    def forward(self, x):
        x = F.relu(self.product(self.lins[0](x)))
        return self.product(self.lins[1](F.dropout(x, 0.5)))


class GatLayer(nn.Module):
    def __init__(self, wide, heads, out, joins):
        super().__init__()
        self.heads, self.out, self.joins = heads, out, joins
        self.lin = nn.Linear(wide, heads * out, bias=False)
        self.att_src, self.att_dst = (nn.Parameter(torch.randn(1, heads, out) / 8) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(heads * out if joins else out))

    def forward(self, x, index):
        h = self.lin(x).view(-1, self.heads, self.out)
        source, target = index
        scores = (h * self.att_src).sum(-1)[source] + (h * self.att_dst).sum(-1)[target]
        scores = F.leaky_relu(scores, 0.2)
        most = torch.zeros(NODES, self.heads).scatter_reduce(0, target[:, None].expand_as(scores), scores.detach(), "amax", include_self=False)
        weight = (scores - most[target]).exp()
        weight = weight / (torch.zeros(NODES, self.heads).index_add(0, target, weight)[target] + 1e-16)
        messages = h[source] * F.dropout(weight, 0.6)[..., None]
        y = torch.zeros(NODES, self.heads, self.out).index_add(0, target, messages)
        return (y.flatten(1) if self.joins else y.mean(1)) + self.bias


class Gat(Graph):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([GatLayer(FEATURES, 8, 8, True), GatLayer(64, 1, CLASSES, False)])

    def forward(self, x):
        return self.convs[1](F.dropout(F.elu(self.convs[0](x, self.index)), 0.6), self.index)


class Gcnii(Graph):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(FEATURES, 64), nn.Linear(64, CLASSES)
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(64, 64) / 8) for _ in range(64)])

    def forward(self, x):
        initial = F.relu(self.first(x))
        x = initial
        for i, weight in enumerate(self.weights):
            beta = math.log(0.5 / (i + 1) + 1)
            h = 0.9 * self.product(F.dropout(x, 0.6)) + 0.1 * initial
            x = F.relu((1 - beta) * h + beta * (h @ weight))
        return self.last(F.dropout(x, 0.6))


def main():
    parser = argparse.ArgumentParser()
    networks = {"gcn": Gcn, "gat": Gat, "gcnii": Gcnii}
    parser.add_argument("names", nargs="*", help="of " + ", ".join(networks) + "; none: all")
    names = parser.parse_args().names
    if wrong := [name for name in names if name not in networks]:
        parser.error(f"expected some of {', '.join(networks)}, got {' '.join(wrong)}")
    for name in names or networks:
        torch.manual_seed(0)
        model, x = networks[name](), torch.randn(NODES, FEATURES)
        target = torch.full((NODES,), -100)
        target[:COUNTED] = torch.randint(0, CLASSES, (COUNTED,))
        held = x.numel() * x.element_size()
        if name == "gat":
            held += sum(part.numel() * 8 for part in model.index)
        print(json.dumps({"network": name, "torch": torch.__version__, "saved_bytes": saved_bytes(model, x, target) - held}))


if __name__ == "__main__":
    main()
