#!/usr/bin/env python3
"""PyTorch's sparse times dense (cuSPARSE on a GPU) on a random graph as large as ogbn-arxiv: medians. One JSON line.

usage: gpu_torch_spmm.py [--dtype f32|bf16] [--nodes N] [--device cuda|cpu]      beside `frugal-lab spmm`
"""
import argparse
import json
import statistics
import time

import torch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    parser.add_argument("--nodes", type=int, default=169343)
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(0)
    dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    nodes = args.nodes
    ends = torch.randint(0, nodes, (2, nodes * 1166243 // 169343))
    index = torch.cat([ends, ends.flip(0), torch.arange(nodes).repeat(2, 1)], 1)
    matrix = torch.sparse_coo_tensor(index, torch.rand(index.shape[1]), (nodes, nodes)).coalesce()
    matrix = matrix.to(dtype).to_sparse_csr().to(args.device)

    def wait():
        if args.device == "cuda":
            torch.cuda.synchronize()

    results = []
    for width in (40, 128, 256):
        x = torch.full((nodes, width), 0.5, dtype=dtype, device=args.device)
        times = []
        for i in range(args.repeats + 2):
            wait()
            start = time.perf_counter()
            torch.sparse.mm(matrix, x)
            wait()
            if i >= 2:
                times.append(1e3 * (time.perf_counter() - start))
        results.append({"width": width, "ms": statistics.median(times)})
    print(json.dumps({"torch": torch.__version__, "nodes": nodes, "entries": matrix.values().numel(), "results": results}))


if __name__ == "__main__":
    main()
