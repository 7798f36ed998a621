#!/usr/bin/env python3
"""Trains tiny networks for very many steps, and looks whether the process and its files stay as large as they were.

usage: long.py PROGRAM [--share SHARE] [--only NAME ...]

Each run has as many steps as RUNS says, times SHARE. While it runs, its resident memory, descriptors and threads, the
processor time of a step and the sizes of its files are read. What they are in the second fifth of the steps is compared
with the last fifth. Checkpoints, evaluations and reports are written all the time. The end, where a page is made of all
reports, does not count.

Exit status: 0, nothing grew; 1, something did; 2, a mistake on the command line.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TALKS = {"name": "conversations", "dir": str(pathlib.Path(__file__).resolve().parents[2] / "configs/lora_sft"), "max_length": 128,
         "batch_size": 4, "train_samples": 24, "test_samples": 4}
RUNS = {
    # name: (steps, configuration). FOLDER is a folder of the run's own.
    "everything": (1_000_000, {
        "model": {"name": "mlp", "hidden": [32], "dropout": 0.1},
        "data": {"name": "random", "shape": [4, 4, 1], "classes": 4, "train_samples": 4000, "test_samples": 64, "batch_size": 16,
                 "workers": 1},
        "optim": {"name": "adamw", "lr": 0.0001, "ema": 0.99, "clip_norm": 1},
        "train": {"log_interval": 100, "checkpoint_interval": 500, "eval_interval": 4, "tensorboard": True, "grad_norms": 500,
                  "label_smoothing": 0.1},
        "compression": {"bits": 3, "guard": 0.5, "entropy": True, "offload": "FOLDER", "gact": {"adaptive": True, "interval": 100},
                        "advanced": {"min_elements": 0, "track_interval": 200, "offload_window": 0}}}),
    "lengths": (100_000, {
        "model": {"name": "decoder", "layers": 1, "width": 16, "heads": 2, "frozen": "nf4"},
        "adapter": {"type": "lora", "rank": 2, "dropout": 0.1},
        "data": TALKS, "optim": {"name": "adamw", "lr": 0.0001}, "train": {"log_interval": 20, "checkpoint_interval": 200, "eval_interval": 60}}),
    "parts of a graph": (100_000, {
        "model": {"name": "sage", "layers": 2, "width": 8},
        "data": {"name": "random_graph", "nodes": 300, "edges": 1200, "features": 8, "classes": 3, "sampler": "neighbours",
                 "fan_outs": [3, 3], "batch_size": 20, "workers": 1},
        "optim": {"name": "adam", "lr": 0.0001}, "train": {"log_interval": 20, "checkpoint_interval": 200, "eval_interval": 40}}),
    "pictures": (30_000, {
        "model": {"name": "resnet20", "width": 4, "layers": 8},
        "data": {"name": "random", "shape": [8, 8, 3], "classes": 3, "train_samples": 400, "test_samples": 8, "batch_size": 8,
                 "flip": True, "crop_padding": 1, "mixup": 0.4, "workers": 2},
        "optim": {"name": "sgd", "lr": 0.001, "momentum": 0.9},
        "train": {"log_interval": 20, "checkpoint_interval": 200, "eval_interval": 8},
        "compression": {"policy": "acgc", "acgc": {"interval": 200}}}),
}
# What the last fifth may have more than the one before.
MORE_MEMORY = 4 << 20      # bytes: parts of a graph differ in size, and larger ones come late
MORE_FILES = 2             # those of a checkpoint that is written at that moment
MORE_SECONDS = 1.5         # times as much processor time for a step; other work on the machine slows it
GROWS = ("metrics.csv", "metrics.jsonl", "events.", "report.html")  # a line for each report


class Sample:
    def __init__(self, process, folder, step):
        root = f"/proc/{process.pid}"
        with open(f"{root}/status") as file:
            status = dict(line.split(":", 1) for line in file)
        self.step = step
        self.memory = int(status["VmRSS"].split()[0]) << 10
        self.threads = int(status["Threads"])
        self.descriptors = len(os.listdir(f"{root}/fd"))
        with open(f"{root}/stat") as file:
            times = file.read().rsplit(")", 1)[1].split()
        self.seconds = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
        self.growing = self.fixed = 0
        for path in pathlib.Path(folder).rglob("*"):
            try:
                size = path.stat().st_size if path.is_file() else 0
            except OSError:
                continue  # the name under which a file is written
            if any(word in path.name for word in GROWS):
                self.growing += size
            else:
                self.fixed += size


def last_step(path):
    """The step of the last report."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - 8192))
            lines = file.read().splitlines()[1:-1]
    except OSError:
        return 0
    for line in reversed(lines):
        try:
            step = json.loads(line).get("step")
        except ValueError:
            continue
        if step:
            return step
    return 0


def train(program, name, share, folder):
    steps, config = RUNS[name]
    steps = max(3000, int(steps * share))
    config = json.loads(json.dumps({**config, "train": {**config["train"], "steps": steps, "epochs": steps}}).replace("FOLDER", folder))
    path, out = os.path.join(folder, "config.json"), os.path.join(folder, "run")
    with open(path, "w") as file:
        json.dump(config, file)
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", FRUGAL_LOG="warn")
    samples = []
    with open(os.path.join(folder, "said"), "w+") as said:
        process = subprocess.Popen([program, "train", path, "--out", out, "--quiet"], env=environment, stdout=said, stderr=said)
        while process.poll() is None:
            step = last_step(os.path.join(out, "metrics.jsonl"))
            try:
                if step and (not samples or step > samples[-1].step):
                    samples.append(Sample(process, out, step))
            except (OSError, KeyError):
                break  # it ended meanwhile
            time.sleep(0.01 if share < 0.1 else 0.5)
        if process.wait() != 0:
            said.seek(0)
            print(f"{name}: ended with status {process.returncode}: {said.read()[-400:]}", flush=True)
            return False
    return judge(name, steps, samples)


def judge(name, steps, samples):
    early = [s for s in samples if 0.2 * steps <= s.step < 0.4 * steps]
    late = [s for s in samples if 0.8 * steps <= s.step < steps]
    if len(early) < 2 or len(late) < 2:
        print(f"{name}: expected two looks at each fifth of {steps} steps, got {len(early)} and {len(late)}", flush=True)
        return False

    def pace(part, what):
        return (getattr(part[-1], what) - getattr(part[0], what)) / (part[-1].step - part[0].step)

    def typical(part, what):
        return statistics.median(getattr(s, what) for s in part)

    wrong = []
    if typical(late, "memory") > typical(early, "memory") + MORE_MEMORY:
        wrong.append("memory")
    for what in ("threads", "descriptors"):
        if typical(late, what) > typical(early, what) + MORE_FILES:
            wrong.append(what)
    # A short run's times are those of other work on the machine.
    if steps == RUNS[name][0] and pace(late, "seconds") > MORE_SECONDS * pace(early, "seconds") + 1e-5:
        wrong.append("seconds of a step")
    if typical(late, "fixed") > 1.1 * typical(early, "fixed") + 4096:  # a new file stands beside the old one for a moment
        wrong.append("files")
    if pace(late, "growing") > 1.2 * pace(early, "growing") + 1:
        wrong.append("files of reports")
    print(f"{name}: {steps} steps; resident {typical(early, 'memory') / 2**20:.1f} and {typical(late, 'memory') / 2**20:.1f} MiB, "
          f"{typical(late, 'descriptors'):.0f} descriptors, {typical(late, 'threads'):.0f} threads, "
          f"{1e3 * pace(early, 'seconds'):.3f} and {1e3 * pace(late, 'seconds'):.3f} ms of processor time for a step, "
          f"files {typical(early, 'fixed'):.0f} and {typical(late, 'fixed'):.0f} bytes, "
          f"reports {pace(early, 'growing'):.2f} and {pace(late, 'growing'):.2f} bytes for a step: "
          + ("grew: " + ", ".join(wrong) if wrong else "ok"), flush=True)
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--share", type=float, default=1)
    parser.add_argument("--only", nargs="+", choices=list(RUNS), default=list(RUNS), metavar="NAME")
    args = parser.parse_args()
    if not 0 < args.share <= 1:
        parser.error(f"--share: expected a number above 0 and at most 1, got {args.share}")
    program, right = os.path.abspath(args.program), True
    for name in args.only:
        folder = tempfile.mkdtemp(prefix="frugal-long-")
        try:
            right &= train(program, name, args.share, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
