#!/usr/bin/env python3
"""Our training step beside PyTorch's, in turn, with the medians of the rounds' ratios.

usage: beside_torch.py [--frugal build/release/bin/frugal] [--torch COMMAND] [--bf16] [--rounds 5] r20|r18|r50|bert|lora|gcn ...

--torch: what runs torch_step.py, such as "chroot /srv/debian13 python3 /root/torch_step.py"; this Python, if it is left out.
--bf16: precision=bf16 beside PyTorch's autocast.
"""
import argparse
import json
import pathlib
import shlex
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
    parser.add_argument("--torch", default=f"{shlex.quote(sys.executable)} {shlex.quote(str(here / 'torch_step.py'))}")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    sets, autocast = (["--set", "precision=bf16"], ["--autocast"]) if args.bf16 else ([], [])
    for name in args.names:
        rows, torch_bytes = {}, 0
        for _ in range(args.rounds):
            ours = run([args.frugal, "bench", "step", "--workload", name, "--repeats", "5", "--json", *sets])
            torch = run([*shlex.split(args.torch), name, "--steps", "5", *autocast])
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
