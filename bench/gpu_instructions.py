#!/usr/bin/env python3
"""Counts the machine instructions of the CUDA kernels that pack, for 32 elements. Needs nvcc, and no GPU.

usage: gpu_instructions.py [--nvcc nvcc] [--show NAME]

A thread packs 8 rows of 4 columns. What is counted is the shortest way through the kernel that does all of that: it
loads 8 rows, exchanges their extremes with other lanes in two steps, asks for the rows of a later tile, draws the random
words, and stores all words of codes. So it is the usual way of a thread that neither computes the parameters of groups
nor meets an edge or a value that is not finite. Predicated instructions count, too. Spills are bytes of a thread.

An instruction of the H100 (sm_90) is a word of 128 bits: bits 0 to 11 name it, and 12 to 15 its predicate. Those of a
branch give the distance in words of 32 bits from the next instruction: its lowest byte in bits 16 to 23, the others from
bit 34 on.
"""
import argparse
import heapq
import os
import re
import struct
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


def field(word, begin, end):
    return word >> begin & (1 << (end - begin)) - 1


def functions_of(path):
    """Function name -> its instructions, from the sections of an ELF file."""
    with open(path, "rb") as file:
        data = file.read()
    sections_at, = struct.unpack_from("<Q", data, 40)
    count, names = struct.unpack_from("<HH", data, 60)
    sections = [struct.unpack_from("<IIQQQQ", data, sections_at + 64 * i) for i in range(count)]
    found = {}
    for name_at, _, _, _, at, size in sections:
        begin = sections[names][4] + name_at
        name = data[begin:data.index(b"\0", begin)].decode()
        if name.startswith(".text."):
            found[name[6:]] = [int.from_bytes(data[i:i + 16], "little") for i in range(at, at + size, 16)]
    return found


LOAD, STORE, EXCHANGE, PREFETCH, BARRIER, BRANCH, EXIT, RETURN = 0x981, 0x986, 0x589, 0x98F, 0xB1D, 0x947, 0x94D, 0x950
WIDE_PRODUCT = 0x825  # of a register and a constant, which bits 32 to 63 hold


def is_op(*ops):
    return lambda word: field(word, 0, 12) in ops


def is_access(op, size):
    """size: 4, 5 and 6 are 32, 64 and 128 bits."""
    return lambda word: field(word, 0, 12) == op and field(word, 73, 76) == size


def is_draw(word):
    return field(word, 0, 12) == WIDE_PRODUCT and field(word, 32, 64) == 0xD2511F53


def successors(code, i):
    op, always = field(code[i], 0, 12), field(code[i], 12, 16) == 7
    if op == EXIT:
        return [] if always else [i + 1]
    if op == RETURN:
        return []
    if op != BRANCH:
        return [i + 1]
    high = field(code[i], 34, 82)
    distance = (high - (high >> 47 << 48)) * 256 + field(code[i], 16, 24)
    to = i + 1 + distance // 4
    return [to] if always and field(code[i], 87, 91) == 7 else [to, i + 1]


def shortest(code, wanted):
    """The places of the instructions of the shortest way from the first one to EXIT that meets each pattern so often. A
    pattern counts between the barriers of that number and the next."""
    goal = tuple(count for _, count, _ in wanted)
    meets = [tuple(1 if is_it(word) else 0 for is_it, _, _ in wanted) for word in code]
    start = (0, (0,) * len(wanted))
    before, steps, queue = {}, {start: 0}, [(0, start)]
    while queue:
        length, state = heapq.heappop(queue)
        if steps[state] < length:
            continue
        i, counts = state
        barriers = counts[0]
        counts = tuple(min(c + (m if at in (None, barriers) else 0), g)
                       for c, m, g, (_, _, at) in zip(counts, meets[i], goal, wanted))
        if field(code[i], 0, 12) == EXIT and counts == goal:
            way = [i]
            while state in before:
                state = before[state]
                way.append(state[0])
            return way[::-1]
        for j in successors(code, i):
            if 0 <= j < len(code) and length + 1 < steps.get((j, counts), 1 << 30):
                steps[j, counts] = length + 1
                before[j, counts] = state
                heapq.heappush(queue, (length + 1, (j, counts)))
    return None


def wanted_of(kind, bits, classes):
    half = kind == "BFloat16"
    # The least and the greatest of each class: bf16 in two registers, f32 in four.
    exchanged = 2 * 2 * (2 if half else 4) * classes
    return [(is_op(BARRIER), 2, None), (is_access(LOAD, 5 if half else 6), 8, 0), (is_op(EXCHANGE), exchanged, 0),
            (is_op(PREFETCH), 1, 0), (is_draw, 11, 2), (is_access(STORE, 4), bits, 2)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--show", metavar="NAME", help="print the instructions of this kernel: their places and words")
    args = parser.parse_args()
    lines = [LINE % (kind, bits, classes, other, other) for kind, bits, classes, other in KERNELS.values()]
    with tempfile.TemporaryDirectory() as folder:
        source, binary = os.path.join(folder, "k.cu"), os.path.join(folder, "k.cubin")
        with open(source, "w") as file:
            file.write(SOURCE % "\n".join(lines))
        built = run([args.nvcc, "-std=c++20", "-O3", "--expt-relaxed-constexpr", "-DFMT_USE_CONSTEXPR=1", "-fmad=false",
                     "-I" + ROOT, "-arch=sm_90", "-cubin", "-Xptxas", "-v", "-o", binary, source])
        functions = functions_of(binary)
    used = dict(re.findall(r"Function properties for (\S+)\n(.*?registers)", built.stderr, re.S))
    print(f"{'kernel':28}{'instructions':>13}{'registers':>11}{'spilled':>9}")
    for name, (kind, bits, classes, other) in KERNELS.items():
        type_name = "NS_8BFloat16E" if kind == "BFloat16" else "f"
        match = [f for f in functions if f"pack_kernelI{type_name}Li{bits}ELi{classes}E" in f and other in f]
        if len(match) != 1:
            sys.exit(f"{name}: expected one kernel, got {match}")
        way = shortest(functions[match[0]], wanted_of(kind, bits, classes))
        if way is None:
            sys.exit(f"{name}: no way through the kernel does the usual work; does nvcc write other instructions?")
        facts = used[match[0]]
        spilled = int(re.search(r"(\d+) bytes spill stores", facts)[1])
        registers = int(re.search(r"Used (\d+) registers", facts)[1])
        print(f"{name:28}{len(way):13}{registers:11}{spilled:9}")
        if args.show == name:
            for i in way:
                print(f"    {16 * i:05x} {functions[match[0]][i]:032x}")


if __name__ == "__main__":
    main()
