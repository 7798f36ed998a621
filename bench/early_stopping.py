#!/usr/bin/python3
"""Test accuracy where early stopping would have stopped: at the lowest validation loss before `patience` epochs without a lower one.

usage: early_stopping.py [--patience 100] RUN ...
RUN: folders of `frugal train --out RUN` with train.eval_interval=1, one a seed. Prints each run's and then their mean and standard deviation.
"""
import argparse
import json
import pathlib
import statistics


def stop(epochs, patience):
    """The epoch that is kept, and the last that would have run."""
    best, waited = None, 0
    for epoch in epochs:
        waited += 1
        if best is None or epoch["validation"]["loss"] < best["validation"]["loss"]:
            best, waited = epoch, 0
        elif waited == patience:
            return best, epoch
    return best, None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patience", type=int, default=100)
    parser.add_argument("runs", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    accuracies = []
    for run in arguments.runs:
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        epochs = [line for line in lines if line["type"] == "epoch" and "validation" in line]
        if not epochs:
            parser.error(f"expected epochs with a validation loss in {run}, got none")
        best, last = stop(epochs, arguments.patience)
        accuracies.append(100 * best["test_accuracy"])
        ended = f"stops at {last['epoch']}" if last else "never stops: too few epochs"
        print(f"{run}: {accuracies[-1]:.2f} % at epoch {best['epoch']}, {ended}")
    spread = f" +- {statistics.stdev(accuracies):.2f}" if len(accuracies) > 1 else ""
    print(f"mean of {len(accuracies)}: {statistics.mean(accuracies):.2f}{spread} %")


if __name__ == "__main__":
    main()
