#!/usr/bin/env python3
"""frugal.train() beside the program: equal weights, and how long a step takes in both.

usage: train_beside_program.py [--frugal build/release/bin/frugal] [--rounds 5] [CONFIG [--set KEY=VALUE ...]]
needs: the Python package in PYTHONPATH

Without a configuration: ResNet-20 on random pictures, 40 steps of 128 pictures at 4 bits. Each round
trains the same run with both, in processes of their own, in an order that changes from round to
round. Prints the median of a run's median step for both, and their ratio.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

CONFIG = {
    "model": {"name": "resnet20"},
    "data": {"name": "random", "shape": [32, 32, 3], "classes": 10, "train_samples": 1280, "test_samples": 128, "batch_size": 128},
    "train": {"steps": 40},
    "compression": {"level": "L1"},
}
IN_PYTHON = """
import json, sys
import frugal
frugal.train(sys.argv[1], out=sys.argv[2], overwrite=True, quiet=True, set=json.loads(sys.argv[3]))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?")
    parser.add_argument("--frugal", default="build/release/bin/frugal")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = arguments.config
        if config is None:
            config = f"{folder}/config.json"
            pathlib.Path(config).write_text(json.dumps(CONFIG))
        values = {}
        for one in arguments.set:
            key, _, value = one.partition("=")
            try:
                values[key] = json.loads(value)
            except ValueError:
                values[key] = value
        sets = [word for one in arguments.set for word in ("--set", one)]
        program = [arguments.frugal, "train", config, "--out", f"{folder}/program", "--overwrite", "--quiet", *sets]
        python = [sys.executable, "-c", IN_PYTHON, config, f"{folder}/python", json.dumps(values)]
        steps = {"program": [], "python": []}
        for i in range(arguments.rounds):
            order = [("program", program), ("python", python)]
            for name, command in order if i % 2 == 0 else reversed(order):
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                summary = json.loads(pathlib.Path(folder, name, "summary.json").read_text())
                steps[name].append(summary["speed"]["step_ms_median"])
            weights = [pathlib.Path(folder, name, "checkpoint/last.safetensors").read_bytes() for name in steps]
            if weights[0] != weights[1]:
                sys.exit("the weights differ")
    medians = {name: statistics.median(times) for name, times in steps.items()}
    ratio = medians["python"] / medians["program"]
    print(json.dumps({"equal": True, "step_ms": medians, "ratio": round(ratio, 4), "all": steps}))


if __name__ == "__main__":
    main()
