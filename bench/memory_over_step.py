#!/usr/bin/env python3
"""Draws the memory over one training step, with and without compression, as an SVG picture.

Runs `frugal bench step --trace` and draws the bytes of live tensors after each allocation and release. A light area
is the memory of activations, whole or packed; the line above it is the total. Needs only the Python standard library.

usage: memory_over_step.py [--frugal build/release/bin/frugal] [--workload r20] [--out docs/images/memory_over_step.svg]
       memory_over_step.py --csv FILE ...     draws a trace that was written before
"""
import argparse
import csv
import pathlib
import subprocess
import tempfile

VARIANTS = [("whole activations (L0)", "compression.level=L0 compression.recipes=false", "#c2410c"),
            ("4 bits (the default)", "compression.level=L1", "#1d4ed8")]
WIDTH, HEIGHT = 760, 320
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 34, 44
MIB = 1 << 20


def trace(frugal, workload, path):
    command = [frugal, "bench", "step", "--workload", workload, "--repeats", "3", "--only", "--trace", path]
    for name, keys, _ in VARIANTS:
        command += ["--variant", f"{name}: {keys}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def read(path):
    """{variant: [(milliseconds, phase, total, saved), ...]}"""
    rows = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            saved = int(row["activation"]) + int(row["packed"])
            rows.setdefault(row["variant"], []).append(
                (float(row["milliseconds"]), row["phase"], int(row["total"]), saved))
    return rows


def turn_of(events):
    """When the backward pass begins, in milliseconds."""
    return next(event[0] for event in events if event[1] != "forward")


def columns(events, value, count, turn):
    """The highest value in each of `count` equal parts of the step; a part without an event has the value before.

    The forward pass is scaled to the share `turn` of the step, and the rest to the rest.
    """
    begin, end = turn_of(events), events[-1][0]

    def place(event):
        return turn * event[0] / begin if event[0] < begin else turn + (1 - turn) * (event[0] - begin) / (end - begin)

    highest, last, at = [], value(events[0]), 0
    for i in range(count):
        best = last
        while at < len(events) and place(events[at]) <= (i + 1) / count:
            last = value(events[at])
            best = max(best, last)
            at += 1
        highest.append(best)
    return highest


def path_of(values, x, y):
    """An SVG path in relative steps, without points on a straight level line."""
    text, before = f"M{x(0):.0f} {y(values[0]):.1f}", None
    for i, value in enumerate(values):
        if value != before:
            text += f"H{x(i):.0f}V{y(value):.1f}"
            before = value
    return text + f"H{x(len(values)):.0f}"


def draw(rows, title):
    count = (WIDTH - LEFT - RIGHT) // 2
    most = max(event[2] for events in rows.values() for event in events) / MIB
    tick = next(t for t in (10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000, 5000) if most / t <= 6)
    top = most * 1.04
    x = lambda i: LEFT + (WIDTH - LEFT - RIGHT) * i / count
    y = lambda value: HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / MIB / top
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
           'font-family="sans-serif" font-size="13">',
           f"<title>{title}</title>", f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
           f'<text x="{LEFT}" y="20" fill="#111">{title}</text>']
    for value in range(0, int(top) + 1, tick):
        out.append(f'<path d="M{LEFT} {y(value * MIB):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 6}" y="{y(value * MIB) + 4:.1f}" text-anchor="end" fill="#555">{value} MiB</text>')
    first = next(iter(rows.values()))
    turn = turn_of(first) / first[-1][0]
    for (name, events), color in zip(rows.items(), (variant[2] for variant in VARIANTS)):
        total = columns(events, lambda event: event[2], count, turn)
        saved = columns(events, lambda event: event[3], count, turn)
        out.append(f'<path d="{path_of(saved, x, y)}V{y(0):.1f}H{x(0):.0f}Z" fill="{color}" fill-opacity="0.14"/>')
        out.append(f'<path d="{path_of(total, x, y)}" fill="none" stroke="{color}" stroke-width="1.6"/>')
        at = total.index(max(total))
        anchor = "start" if at < count / 2 else "end"
        out.append(f'<text x="{x(at) + (10 if anchor == "start" else -10):.0f}" y="{y(max(total)) - 6:.1f}" '
                   f'text-anchor="{anchor}" fill="{color}">{name}: peak {max(total) / MIB:.0f} MiB</text>')
    middle = x(turn * count)
    out.append(f'<path d="M{middle:.0f} {TOP}V{HEIGHT - BOTTOM}" stroke="#999" stroke-dasharray="3 3"/>')
    for begin, end, label in ((LEFT, middle, "forward pass"), (middle, WIDTH - RIGHT, "backward pass and update")):
        out.append(f'<text x="{(begin + end) / 2:.0f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" fill="#333">{label}</text>')
    out.append(f'<text x="{LEFT}" y="{HEIGHT - 8}" fill="#555">line: all live tensors; shaded: activations, whole or packed; '
               "both passes are scaled to the same length</text></svg>")
    return "\n".join(out) + "\n"


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser()
    parser.add_argument("--frugal", default=str(root / "build/release/bin/frugal"))
    parser.add_argument("--workload", default="r20", choices=["r20", "r18", "r50", "bert", "gcn"])
    parser.add_argument("--title", default="Memory over one training step of ResNet-20, batch 128")
    parser.add_argument("--csv", help="a trace that was written before")
    parser.add_argument("--out", default=str(root / "docs/images/memory_over_step.svg"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = args.csv or str(pathlib.Path(folder) / "trace.csv")
        if not args.csv:
            trace(args.frugal, args.workload, path)
        rows = read(path)
    pathlib.Path(args.out).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(args.out).write_text(draw(rows, args.title))


if __name__ == "__main__":
    main()
