#!/usr/bin/env python3
"""Counts the machine instructions of the CUDA kernels that pack, for 32 elements. Needs nvcc and cuobjdump, and no GPU.

usage: gpu_instructions.py [--arch sm_90] [--nvcc nvcc] [--cuobjdump cuobjdump] [--show NAME]

A thread packs 8 rows of 4 columns. What is counted is the shortest way through the kernel that does all of that: it
loads 8 rows, finds their extremes, combines them in two exchanges with other lanes, draws the random words, and stores
all words of codes. So it is the usual way of a thread that neither computes the parameters of groups nor meets an edge
or a value that is not finite. Predicated instructions count, too. Spills are bytes of a thread.
"""
import argparse
import heapq
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# name: type of the values, bits, classes of elements, what else becomes of a value
KERNELS = {
    "bf16 4 bits": ("BFloat16", 4, 1, "NoMap"),
    "bf16 4 bits, signs": ("BFloat16", 4, 2, "NoMap"),
    "bf16 2 bits": ("BFloat16", 2, 1, "NoMap"),
    "bf16 2 bits, signs": ("BFloat16", 2, 2, "NoMap"),
    "bf16 4 bits, norm": ("BFloat16", 4, 1, "AffineMap"),
    "bf16 4 bits, norm, signs": ("BFloat16", 4, 2, "AffineMap"),
    "f32 4 bits": ("float", 4, 1, "NoMap"),
}
SOURCE = """#include "compress/quantize/fused_pack.cu"
namespace frugal::compress::cuda {
%s
}
"""
LINE = "template __global__ void pack_kernel<%s, %d, %d, %s>(Packing, %s);"


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed:\n{done.stderr[-2000:]}")
    return done


def instructions(text):
    """Function name -> [(address, instruction)]."""
    found, current = {}, None
    for line in text.splitlines():
        if name := re.match(r"\s*Function : (\S+)", line):
            current = found.setdefault(name[1], [])
        elif code := re.match(r"\s*/\*([0-9a-f]{4,6})\*/\s+(.*?)\s*;?\s*/\*", line):
            current.append((int(code[1], 16), code[2].rstrip(" ;")))
    return found


def successors(code, at, i):
    text = code[i][1]
    guarded = text.startswith("@")
    if "EXIT" in text:
        return [i + 1] if guarded else []
    target = re.search(r"\bBRA(?:\.\w+)*\b.*?(0x[0-9a-f]+)$", text)
    if target is None or "BRA.DIV" in text:
        return [] if re.search(r"\bRET\b", text) else [i + 1]
    guarded = guarded or re.search(r"BRA(\.\w+)*\s+!?U?P\d", text)
    return [at[int(target[1], 16)]] + ([i + 1] if guarded else [])


def shortest(code, wanted):
    """The instructions of the shortest way from the first one to EXIT that meets each pattern so often. A pattern
    whose third entry is true counts behind the last barrier alone."""
    at = {address: i for i, (address, _) in enumerate(code)}
    goal = tuple(count for _, count, _ in wanted)
    meets = [tuple(1 if re.search(p, text) else 0 for p, _, _ in wanted) for _, text in code]
    barrier = [p for p, _, _ in wanted].index("BAR")
    start = (0, (0,) * len(wanted))
    before, steps, queue = {}, {start: 0}, [(0, start)]
    while queue:
        length, state = heapq.heappop(queue)
        if steps[state] < length:
            continue
        i, counts = state
        done = counts[barrier] == goal[barrier]
        counts = tuple(min(c + (m if done or not late else 0), g)
                       for c, m, g, (_, _, late) in zip(counts, meets[i], goal, wanted))
        if "EXIT" in code[i][1] and counts == goal:
            way = [code[i]]
            while state in before:
                state = before[state]
                way.append(code[state[0]])
            return way[::-1]
        for j in successors(code, at, i):
            if j < len(code) and length + 1 < steps.get((j, counts), 1 << 30):
                steps[j, counts] = length + 1
                before[j, counts] = state
                heapq.heappush(queue, (length + 1, (j, counts)))
    return None


def wanted_of(kind, bits, classes):
    half = kind == "BFloat16"
    load = r"LDG\.E\.64\b" if half else r"LDG\.E\.128\b"
    # An instruction takes three values at most, for the least and the greatest of each pair or column. Then come two
    # exchanges with other lanes.
    extremes = (16 + 8 if half else 8 * 4 + 16) * classes
    return [(load, 8, False), (r"HMNMX|FMNMX", extremes, False), ("BAR", 2, False),
            (r"IMAD\.WIDE\.U32.*-0x2daee0ad", 11, True), (r"STG\.E (desc|\[)", bits, True)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--cuobjdump", default="cuobjdump")
    parser.add_argument("--show", metavar="NAME", help="print the instructions of this kernel")
    args = parser.parse_args()
    lines = [LINE % (kind, bits, classes, other, other) for kind, bits, classes, other in KERNELS.values()]
    with tempfile.TemporaryDirectory() as folder:
        source, binary = os.path.join(folder, "k.cu"), os.path.join(folder, "k.cubin")
        with open(source, "w") as file:
            file.write(SOURCE % "\n".join(lines))
        built = run([args.nvcc, "-std=c++20", "-O3", "--expt-relaxed-constexpr", "-DFMT_USE_CONSTEXPR=1", "-fmad=false",
                     "-I" + ROOT, "-arch=" + args.arch, "-cubin", "-Xptxas", "-v", "-o", binary, source])
        functions = instructions(run([args.cuobjdump, "--dump-sass", binary]).stdout)
    used = dict(re.findall(r"Function properties for (\S+)\n(.*?registers)", built.stderr, re.S))
    print(f"{'kernel':28}{'instructions':>13}{'registers':>11}{'spilled':>9}")
    for name, (kind, bits, classes, other) in KERNELS.items():
        type_name = "NS_8BFloat16E" if kind == "BFloat16" else "f"
        match = [f for f in functions if f"pack_kernelI{type_name}Li{bits}ELi{classes}E" in f and other in f]
        if len(match) != 1:
            sys.exit(f"{name}: expected one kernel, got {match}")
        way = shortest(functions[match[0]], wanted_of(kind, bits, classes))
        if way is None:
            sys.exit(f"{name}: no way through the kernel does the usual work; are the patterns those of {args.arch}?")
        facts = used[match[0]]
        spilled = int(re.search(r"(\d+) bytes spill stores", facts)[1])
        registers = int(re.search(r"Used (\d+) registers", facts)[1])
        print(f"{name:28}{len(way):13}{registers:11}{spilled:9}")
        if args.show == name:
            for address, text in way:
                print(f"    {address:05x} {text}")


if __name__ == "__main__":
    main()
