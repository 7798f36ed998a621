#!/usr/bin/python3
"""Training steps on a GPU: ours at several levels beside PyTorch's variants, in turn; medians of the rounds.

usage: gpu.py [--frugal build/cuda/bin/frugal] [--rounds 5] [--precision tf32|bf16] WORKLOAD ...
       gpu.py --max-batch [--memory-limit 16] WORKLOAD ...     the largest batch that fits under so many GiB
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TORCH = ["eager", "compile", "checkpoint", "int8", "int4"]
IMAGES = {"name": "random", "shape": [224, 224, 3], "classes": 1000}


def bert(name, length):
    return {"model": {"name": name}, "optim": {"name": "adamw"},
            "data": {"name": "random_tokens", "max_length": length}}


# Our configuration and the batch of the figures.
WORKLOADS = {
    "resnet50": ({"model": {"name": "resnet50"}, "data": IMAGES}, 256),
    "resnet152": ({"model": {"name": "resnet152"}, "data": IMAGES}, 64),
    "bert_base_128": (bert("bert_base", 128), 32),
    "bert_base_512": (bert("bert_base", 512), 32),
    "bert_large_128": (bert("bert_large", 128), 32),
    "bert_large_512": (bert("bert_large", 512), 32),
    "gpt2": ({"model": {"name": "gpt2"}, "optim": {"name": "adamw"}, "data": {"name": "random_tokens", "max_length": 1024}}, 16),
    "gcn": ({"model": {"name": "gcn", "layers": 3, "width": 256, "batch_norm": True},
             "data": {"name": "random_graph", "nodes": 169343, "edges": 1166243, "features": 128}}, 169343),
}


def last_json(text):
    """The last JSON value of a program's output, whether on one line or over several."""
    start = text.find("{") if text.lstrip().startswith("{") else text.rfind("\n{") + 1
    return json.loads(text[start:])


def run(command):
    """What the command printed, or None if it ran out of memory."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return last_json(done.stdout)
    if "out of memory" in (done.stderr + done.stdout).lower():
        return None
    sys.exit(f"{' '.join(command)}\n{done.stderr[-3000:]}")


def ours(args, name, batch, levels=(), limit=0, repeats=10):
    config, _ = WORKLOADS[name]
    path = pathlib.Path(args.scratch) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config))
    command = [args.frugal, "bench", "step", str(path), "--json", "--repeats", str(repeats),
               "--set", "device=cuda", "--set", f"precision={args.precision}"]
    if name != "gcn":
        command += ["--set", f"data.batch_size={batch}"]
    if limit:
        command += ["--set", f"memory_limit={limit} GiB"]
    for level in levels:
        command += ["--variant", level]
    return run(command)


def torch(args, name, variant, batch, limit=0):
    return run([args.python, str(HERE / "gpu_torch_step.py"), "--workload", name, "--variant", variant, "--precision", args.precision,
                "--batch", str(batch), "--memory-limit", str(limit)])


def compare(args, name):
    batch = args.batch or WORKLOADS[name][1]
    rows = {}
    for _ in range(args.rounds):
        measured = []
        step = ours(args, name, batch)
        if step is None:
            print(f"{name}  ours: out of memory at batch {batch}")
        else:
            measured += [(v["name"], batch / v["step_ms_median"] * 1e3, v["memory"]["activation_bytes"], v["memory"]["peak_bytes"])
                         for v in step["variants"]]
        for variant in args.torch:
            if (t := torch(args, name, variant, batch)) is not None:
                measured.append((f"PyTorch {variant}", t["samples_per_s"], t["saved_bytes"], t["peak_bytes"]))
        for key, speed, saved, peak in measured:
            row = rows.setdefault(key, {"speed": []})
            row["speed"].append(speed)
            row["saved"], row["peak"] = saved, peak
    base = rows.get("PyTorch eager")
    for key, row in rows.items():
        over = [a / b for a, b in zip(row["speed"], base["speed"])] if base else [0]
        saved = base["saved"] / row["saved"] if base and row["saved"] else 0
        print(f"{name} {args.precision} b{batch}  {key:<22} {statistics.median(row['speed']):10.1f}/s  over eager {statistics.median(over):.3f}  "
              f"saved {row['saved'] / 2**20:9.1f} MiB ({saved:.2f}x less)  peak {row['peak'] / 2**20:9.1f} MiB "
              f"({base['peak'] / row['peak'] if base else 0:.2f}x less)", flush=True)


def largest(fits):
    """The largest batch that fits, to one in sixteen."""
    low, high = 0, 1
    while fits(high):
        low, high = high, high * 2
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def max_batch(args, name):
    for key, level in (("L0", "L0: compression.level=L0"), ("L1", "L1: compression.level=L1"), ("L2.2", "L2.2: compression.level=L2.2")):
        most = largest(lambda n: ours(args, name, n, [level], args.memory_limit, 1) is not None)
        print(f"{name} {args.precision}  ours {key:<10} batch {most}", flush=True)
    for variant in args.torch:
        if variant != "compile":
            most = largest(lambda n: torch(args, name, variant, n, args.memory_limit) is not None)
            print(f"{name} {args.precision}  PyTorch {variant:<10} batch {most}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", choices=sorted(WORKLOADS))
    parser.add_argument("--frugal", default=str(HERE.parent / "build/cuda/bin/frugal"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--precision", default="tf32", choices=["f32", "tf32", "bf16"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--torch", nargs="*", default=TORCH, choices=TORCH)
    parser.add_argument("--max-batch", action="store_true")
    parser.add_argument("--memory-limit", type=int, default=16, help="GiB")
    parser.add_argument("--scratch", default="build/bench")
    args = parser.parse_args()
    for name in args.names:
        (max_batch if args.max_batch else compare)(args, name)


if __name__ == "__main__":
    main()
