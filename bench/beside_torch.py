#!/usr/bin/env python3
"""Our training step beside PyTorch's, in turn, with the medians of the rounds' ratios.

usage: beside_torch.py [--frugal build/release/bin/frugal] [--rounds 5] r20|r18|r50|bert|lora|gcn ...
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys


def last_json(text):
    """The last JSON value of a program's output, whether on one line or over several."""
    start = text.find("{") if text.lstrip().startswith("{") else text.rfind("\n{") + 1
    return json.loads(text[start:])


def run(command):
    return last_json(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", choices=["r20", "r18", "r50", "bert", "lora", "gcn"])
    parser.add_argument("--frugal", default=str(here.parent / "build/release/bin/frugal"))
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    for name in args.names:
        rows, torch_bytes = {}, 0
        for _ in range(args.rounds):
            ours = run([args.frugal, "bench", "step", "--workload", name, "--repeats", "5", "--json"])
            torch = run([sys.executable, str(here / "torch_step.py"), name, "--steps", "5"])
            torch_bytes = torch["saved_bytes"]
            variants = {v["name"]: v for v in ours["variants"]}
            plain = variants["L0 without recipes"]["step_ms_median"]
            for key, v in variants.items():
                row = rows.setdefault(key, {"over_torch": [], "over_l0": [], "ms": []})
                row["over_torch"].append(v["step_ms_median"] / torch["step_ms"])
                row["over_l0"].append(v["step_ms_median"] / plain)
                row["ms"].append(v["step_ms_median"])
                row["bytes"], row["peak"] = v["memory"]["activation_bytes"], v["memory"]["peak_bytes"]
        for key, row in rows.items():
            median = {k: statistics.median(row[k]) for k in ("over_torch", "over_l0", "ms")}
            print(f"{name}  {key:<18} {median['ms']:8.1f} ms  over PyTorch {median['over_torch']:.3f}  "
                  f"over L0 {median['over_l0']:.3f}  activations {row['bytes'] / 1e6:7.2f} MB  "
                  f"PyTorch's over ours {torch_bytes / row['bytes']:5.2f}  peak {row['peak'] / 1e6:.1f} MB")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
