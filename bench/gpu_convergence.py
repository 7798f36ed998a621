#!/usr/bin/env python3
"""Does compression cost accuracy?  ResNet-18 and ResNet-50 on CIFAR-10, without loss, at L1 and at 2 bits by sensitivity, a few seeds
each: a table of test accuracies with their deviations.

usage: gpu_convergence.py [--frugal build/cuda/bin/frugal] [--out build/convergence] [--models resnet18 resnet50] [--seeds 3]
needs: CIFAR-10 (`frugal data fetch cifar10`). Runs that were stopped are resumed, those that ended are not run again.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# L0 keeps everything as it is; L2.2 is a width for each tensor, 2 bits on average.
LEVELS = {"L0": ["compression.level=L0", "compression.recipes=false"], "L1": ["compression.level=L1"], "L2.2": ["compression.level=L2.2"]}


def summary_of(folder):
    path = folder / "summary.json"
    return json.loads(path.read_text()) if path.exists() else None


def train(args, model, level, seed):
    """The summary of the run, or None with a printed reason."""
    folder = pathlib.Path(args.out) / f"{model}_{level}_{seed}"
    if (done := summary_of(folder)) is not None:
        return done
    command = [args.frugal, "train", str(HERE.parent / f"configs/cifar10_{model}.json"), "--out", str(folder)]
    sets = LEVELS[level] + [f"seed={seed}", f"device={args.device}", f"precision={args.precision}", *args.set]
    for each in sets + ([f"train.epochs={args.epochs}"] if args.epochs else []):
        command += ["--set", each]
    if folder.exists():
        command.append("--resume")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.log", "a") as log:
        status = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT).returncode
    if status != 0:
        print(f"{model} {level} seed {seed}: status {status}, see {folder}.log", flush=True)
        return None
    return summary_of(folder)


def mean_and_deviation(values):
    deviation = f" +- {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{deviation}"


def show(model, results):
    base = [s["final"]["test_accuracy"] for s in results.get("L0", [])]
    for level, summaries in results.items():
        if not summaries:
            continue
        accuracies = [100 * s["final"]["test_accuracy"] for s in summaries]
        best = [100 * s["best"]["test_accuracy"] for s in summaries]
        less = statistics.mean(accuracies) - 100 * statistics.mean(base) if base else float("nan")
        print(f"{model:<9} {level:<5} {len(accuracies)} seeds  last epoch {mean_and_deviation(accuracies):>14} %  best "
              f"{mean_and_deviation(best):>14} %  beside L0 {less:+.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--frugal", default=str(HERE.parent / "build/cuda/bin/frugal"))
    parser.add_argument("--out", default="build/convergence")
    parser.add_argument("--models", nargs="*", default=["resnet18", "resnet50"], choices=["resnet18", "resnet50"])
    parser.add_argument("--levels", nargs="*", default=list(LEVELS), choices=list(LEVELS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=0, help="instead of the configuration's")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="tf32", choices=["f32", "tf32", "bf16"])
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="of every run; repeatable")
    args = parser.parse_args()
    failed = False
    for model in args.models:
        results = {level: [] for level in args.levels}
        for seed in range(args.seeds):  # so that what is there after a seed may be compared
            for level in args.levels:
                summary = train(args, model, level, seed)
                failed |= summary is None
                if summary is not None:
                    results[level].append(summary)
            show(model, results)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
