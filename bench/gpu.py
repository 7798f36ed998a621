#!/usr/bin/env python3
"""Training steps on a GPU: ours at several levels beside PyTorch's variants, in turn; medians of the rounds.

usage: gpu.py [--frugal build/cuda/bin/frugal] [--rounds 5] [--precision tf32|bf16] [--batch N] WORKLOAD ...
       gpu.py --max-batch [--memory-limit 16] WORKLOAD ...     the largest batch where so many GiB of the GPU are free
       gpu.py roofline                                         packing and unpacking beside copying on the device
       gpu.py spmm                                             sums over neighbours beside PyTorch's (cuSPARSE)
       gpu.py sanitize                                         the tests of CUDA, and of whole runs on it, under compute-sanitizer
       gpu.py all                                              a reference table: all measurements, steps in tf32 and bf16, captured too
needs: a build of the preset `cuda`; PyTorch 2 (and torchvision for ResNets) in --python.

What fails is told of and left out. What cuDNN or cuBLASLt did not take, so that slower kernels of ours ran, is told of too.
Every measurement is a line of SCRATCH/results.jsonl.
Equal on both sides: model, vocabulary, batch on the device beforehand, 3 steps to warm up, nothing read back but the loss. BERT's last
layer is computed for the first token alone. Saved bytes leave out parameters, casts of them and the batch; peaks are of tensors and
workspaces. Both may take kernels whose bits differ from run to run. Not equal: ours reads targets and predictions back to count what
is right, and BERT's batches have a mask of tokens, all ones; PyTorch's have none. With --max-batch another process holds the rest of
the GPU, so contexts, libraries' workspaces and caches count alike.
"""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TORCH = ["eager", "compile", "checkpoint", "int8", "int4"]
LEVELS = ["L0", "L1", "L1.2", "L2.2"]
PLAIN = "L0 without recipes"
IMAGES = {"name": "random", "shape": [224, 224, 3], "classes": 1000}
PUBLISHED = {"resnet50": 4.3, "resnet152": 8.0, "bert_large_128": 24.7}  # largest batches over those without compression (GACT)
MOST = 1 << 20  # the largest batch that the search tries
NO_MEMORY = ("out of memory", "outofmemory", "out_of_memory", "alloc_failed", "allocation_failed")


def tokens(model, length):
    return {"model": model, "optim": {"name": "adamw"}, "data": {"name": "random_tokens", "max_length": length}}


# Our configuration and the batches of the figures; of gcn the nodes.
WORKLOADS = {
    "resnet50": ({"model": {"name": "resnet50"}, "data": IMAGES}, (256, 128)),
    "resnet152": ({"model": {"name": "resnet152"}, "data": IMAGES}, (64,)),
    "bert_base_128": (tokens({"name": "bert_base"}, 128), (32,)),
    "bert_base_512": (tokens({"name": "bert_base"}, 512), (32,)),
    "bert_large_128": (tokens({"name": "bert_large"}, 128), (32, 16)),
    "bert_large_512": (tokens({"name": "bert_large"}, 512), (32, 16)),
    "gpt2": (tokens({"name": "gpt2", "vocab_size": 50257}, 1024), (16,)),
    "gcn": ({"model": {"name": "gcn", "layers": 3, "width": 256, "batch_norm": True}, "data": {"name": "random_graph", "features": 128}},
            (169343,)),
}


def last_json(text):
    """The last JSON value of a program's output, whether on one line or over several."""
    start = text.find("{") if text.lstrip().startswith("{") else text.rfind("\n{") + 1
    return json.loads(text[start:])


class Failed(Exception):
    """Why a command gave nothing; `memory`: there was not enough."""

    def __init__(self, why, memory=False):
        super().__init__(why)
        self.memory = memory


def run(args, command, environment=None):
    """What the command printed, as JSON."""
    command = [str(word) for word in command]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=args.timeout, env=os.environ | (environment or {}))
    except subprocess.TimeoutExpired:
        raise Failed(f"no end within {args.timeout} s") from None
    except OSError as e:
        raise Failed(str(e)) from None
    if done.returncode == 0:
        try:
            return last_json(done.stdout)
        except ValueError:
            raise Failed(f"printed no JSON: {done.stdout[-200:]}") from None
    text = (done.stderr + done.stdout).strip()
    if any(words in text.lower() for words in NO_MEMORY):
        raise Failed("out of memory", memory=True)
    raise Failed(f"status {done.returncode}: {text.splitlines()[-1][:300] if text else 'nothing printed'}")


def ours(args, name, batch, variants, only=False, repeats=None):
    config = json.loads(json.dumps(WORKLOADS[name][0]))
    if name == "gcn":
        config["data"] |= {"nodes": batch, "edges": batch * 1166243 // 169343}
    else:
        config["data"]["batch_size"] = batch
    scratch = pathlib.Path(args.scratch)
    scratch.mkdir(parents=True, exist_ok=True)
    path = scratch / f"{name}.json"
    path.write_text(json.dumps(config))
    command = [args.frugal, "bench", "step", path, "--json", "--repeats", repeats or args.steps,
               "--set", "device=cuda", "--set", f"precision={args.precision}", "--set", "deterministic=false"]
    command += ["--only"] if only else []
    for variant in variants:
        command += ["--variant", variant]
    return run(args, command, {} if args.max_batch else {"FRUGAL_AUTOTUNE": str(scratch / "autotune.tsv")})


def torch(args, name, variant, batch, steps=None):
    return run(args, [args.python, HERE / "gpu_torch_step.py", "--workload", name, "--variant", variant, "--precision", args.precision,
                      "--batch", batch, "--steps", steps or args.steps])


def level(name, captured=False):
    return f"{name}{' captured' if captured else ''}: compression.level={name}{' cuda_graphs=true' if captured else ''}"


TOLD = set()


def told_of(args, name, batch, fallback):
    """Prints what a library did not take, once for each workload, and keeps the count."""
    key = (name, args.precision, batch, fallback["what"])
    if key not in TOLD:
        TOLD.add(key)
        print(f"{name} {args.precision} b{batch}  slower: {fallback['what']}: {fallback['instead']} instead", flush=True)
    with open(pathlib.Path(args.scratch) / "results.jsonl", "a") as log:
        log.write(json.dumps({"workload": name, "precision": args.precision, "batch": batch, "fallback": fallback}) + "\n")


def our_rows(args, name, batch):
    """Yields (row, ms, saved bytes, peak bytes), or (row, why there are none)."""
    for captured in (False, True) if args.captured else (False,):
        try:
            variants = [level(each, captured) for each in args.levels]
            step = ours(args, name, batch, variants, only=captured)
        except Failed as e:
            yield ("ours" + (" captured" if captured else ""), str(e))
            continue
        for fallback in step["library_fallbacks"]:
            told_of(args, name, batch, fallback)
        for v in step["variants"]:
            if v["out_of_memory"]:
                yield (v["name"], "out of memory")
            elif v.get("obstacle"):
                yield (v["name"], f"not captured: {v['obstacle']}")
            else:
                yield (v["name"], v["step_ms_median"], v["memory"]["activation_bytes"], v["memory"]["peak_bytes"])


def torch_rows(args, name, batch):
    for variant in args.torch:
        row = f"PyTorch {variant}"
        try:
            t = torch(args, name, variant, batch)
        except Failed as e:
            yield (row, str(e))
        else:
            yield (row, t["step_ms"], t["saved_bytes"], t["peak_bytes"])


def ratio(a, b, digits=3):
    """Medians over the rounds that have both."""
    rounds = [a[i] / b[i] for i in a if i in b]
    return f"{statistics.median(rounds):.{digits}f}" if rounds else "-"


def compare(args, name, batch):
    rows, label = {}, f"{name} {args.precision} b{batch}"
    for i in range(args.rounds):
        for rows_of in (our_rows, torch_rows):
            for key, *found in rows_of(args, name, batch):
                record = {"workload": name, "precision": args.precision, "batch": batch, "round": i, "row": key}
                if len(found) == 1:
                    print(f"{label}  round {i + 1}  {key}: {found[0]}", flush=True)
                    record["failed"] = found[0]
                else:
                    row = rows.setdefault(key, {"ms": {}})
                    row["ms"][i], row["saved"], row["peak"] = found
                    print(f"{label}  round {i + 1}  {key}: {found[0]:.2f} ms", flush=True)
                    record |= {"step_ms": found[0], "saved_bytes": found[1], "peak_bytes": found[2]}
                with open(pathlib.Path(args.scratch) / "results.jsonl", "a") as log:
                    log.write(json.dumps(record) + "\n")
    nothing = {"ms": {}, "saved": None, "peak": None}
    eager, plain, level0 = (rows.get(key, nothing) for key in ("PyTorch eager", PLAIN, "L0"))
    print(f"{'':<{len(label)}}  {'':<22} {'samples/s':>10}  {'speed':>9}  {'time over':>9}  {'time':>9}  {'saved':>10} {'eager':>6}  {'peak':>10} {'eager':>6}")
    print(f"{'':<{len(label)}}  {'':<22} {'':>10}  {'over eager':>9} {'L0 plain':>9}  {'over L0':>9}  {'MiB':>10} {'over':>6}  {'MiB':>10} {'over':>6}")
    for key, row in rows.items():
        speed = statistics.median(batch / ms * 1e3 for ms in row["ms"].values())

        def bytes_of(what):
            if row[what] is None:
                return f"{'-':>10} {'-':>6}"
            less = f"{eager[what] / row[what]:.2f}" if eager[what] and row[what] else "-"
            return f"{row[what] / 2**20:10.1f} {less:>6}"

        print(f"{label}  {key:<22} {speed:10.1f}  {ratio(eager['ms'], row['ms']):>9}  {ratio(row['ms'], plain['ms']):>9}  "
              f"{ratio(row['ms'], level0['ms']):>9}  {bytes_of('saved')}  {bytes_of('peak')}", flush=True)


def largest(fits, first, most=MOST):
    """The largest batch up to `most` that fits, to one in sixteen; 0: none does."""
    low, high = 0, max(1, min(first, most))
    while fits(high):
        low = high
        if high == most:
            return most
        high = min(2 * high, most)
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@contextlib.contextmanager
def only_free(gib):
    """With so many GiB of the GPU free, or with all of them where it is 0."""
    if not gib:
        yield
        return
    with subprocess.Popen([sys.executable, HERE / "gpu_hold.py", str(gib)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        if not holder.stdout.readline().strip():
            sys.exit(f"could not hold all but {gib} GiB of the GPU's memory")
        try:
            yield
        finally:
            holder.stdin.close()


def max_batch(args, name):
    level0 = None
    first = max(1, min(WORKLOADS[name][1]) // 4)
    tries = [(each, lambda n, each=each: ours(args, name, n, [level(each)], True, 1)) for each in args.levels]
    tries += [(f"PyTorch {each}", lambda n, each=each: torch(args, name, each, n, 1)) for each in args.torch if each != "compile"]
    for row, attempt in tries:
        trouble, fitted = [], []

        def fits(n):
            try:
                attempt(n)
            except Failed as e:
                if not e.memory:
                    trouble.append(f"b{n}: {e}")
                if not e.memory and not fitted:
                    raise
                return False
            fitted.append(n)
            return True

        with only_free(args.memory_limit):
            try:
                most = largest(fits, first)
            except Failed:
                most = "-"
        if row == "L0":
            level0 = most
        over = f"  {most / level0:.2f} x L0's" if level0 and level0 != "-" and most != "-" else ""
        if over and row != "L0" and row in args.levels and name in PUBLISHED:
            over += f" (published: {PUBLISHED[name]})"
        print(f"{name} {args.precision}  {row:<20} batch {most}{over}{'  but ' + '; '.join(trouble) if trouble else ''}", flush=True)


def roofline(args):
    """At 1 GiB: f32 at 85 % of copying or more, bf16 at 80 %."""
    for dtype, target in (("f32", 0.85), ("bf16", 0.80)):
        for channels in (64, 256, 2048):
            try:
                found = run(args, [args.frugal, "bench", "quantizer", "--device", "cuda", "--dtype", dtype, "--channels", channels,
                                   "--mebibytes", args.mebibytes, "--json"])
            except Failed as e:
                print(f"{dtype} [{channels} channels]: {e}", flush=True)
                continue
            for row in found["results"]:
                pack, unpack = row["pack_over_memcpy"], row["unpack_over_memcpy"]
                coded = row["entropy_coded"]
                kind = row["rounding"] + (", signs" if row["sign"] else "") + (", coded" if coded else "")
                counts = row["bits"] in (1, 2, 4, 8) and not row["sign"] and not coded and row["rounding"] == "stochastic"
                verdict = f"  {'reaches' if min(pack, unpack) >= target else 'MISSES'} {target}" if counts else ""
                print(f"{dtype} {found['bytes'] >> 20} MiB, {channels:>4} channels, {row['bits']} bits, {kind:<18} copy "
                      f"{row['memcpy_gb_per_s']:7.1f} GB/s  pack {pack:.3f}  unpack {unpack:.3f}{verdict}", flush=True)


def spmm(args):
    for dtype in ("f32", "bf16"):
        try:
            found = run(args, [f"{args.frugal}-lab", "spmm", "--device", "cuda", "--dtype", dtype, "--json"])
            theirs = run(args, [args.python, HERE / "gpu_torch_spmm.py", "--dtype", dtype])
        except Failed as e:
            print(f"spmm {dtype}: {e}", flush=True)
            continue
        for a, b in zip(found["results"], theirs["results"]):
            print(f"spmm {dtype}, {found['nodes']} nodes, {a['width']:>3} wide: {a['ms']:.3f} ms, PyTorch {b['ms']:.3f} ms, "
                  f"ours over theirs {a['ms'] / b['ms']:.3f}", flush=True)


def sanitize(args):
    """Runs ctest's tests of that label: memcheck, racecheck, synccheck and initcheck. They take hours."""
    build = pathlib.Path(args.frugal).resolve().parent.parent
    command = ["ctest", "--test-dir", str(build), "-L", "^sanitized$", "--output-on-failure", "--no-tests=error"]
    print(" ".join(command), flush=True)
    try:
        status = subprocess.run(command, env=os.environ | {"FRUGAL_WITHOUT_GPU": "0"}).returncode
    except OSError as e:
        sys.exit(f"error: {e}")
    if status != 0:
        sys.exit(f"error: expected tests that pass under compute-sanitizer, got status {status} of ctest; there are none where "
                 "CMake did not find compute-sanitizer beside nvcc")


def run_all(args):
    def changed(**what):
        return argparse.Namespace(**vars(args) | what)

    for precision in ("tf32", "bf16"):
        for name, (_, batches) in WORKLOADS.items():
            for batch in batches:
                compare(changed(precision=precision, captured=True), name, batch)
    roofline(args)
    spmm(args)
    for name in PUBLISHED:
        max_batch(changed(precision="tf32", max_batch=True), name)
    print(f"What compression costs in accuracy takes hours: {HERE}/gpu_convergence.py --frugal {args.frugal}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", choices=sorted(WORKLOADS) + ["roofline", "sanitize", "spmm", "all"])
    parser.add_argument("--frugal", default=str(HERE.parent / "build/cuda/bin/frugal"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--precision", default="tf32", choices=["f32", "tf32", "bf16"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="of a round")
    parser.add_argument("--batch", type=int, default=0, help="instead of the figures'")
    parser.add_argument("--levels", nargs="*", default=LEVELS)
    parser.add_argument("--captured", action="store_true", help="our steps as CUDA graphs too")
    parser.add_argument("--torch", nargs="*", default=TORCH, choices=TORCH)
    parser.add_argument("--max-batch", action="store_true")
    parser.add_argument("--memory-limit", type=float, default=16, help="GiB; 0: the whole GPU")
    parser.add_argument("--mebibytes", type=int, default=1024, help="of the tensor of roofline")
    parser.add_argument("--timeout", type=float, default=900, help="seconds a run")
    parser.add_argument("--scratch", default="build/bench")
    args = parser.parse_args()
    pathlib.Path(args.scratch).mkdir(parents=True, exist_ok=True)
    if set(args.names) - {"roofline", "sanitize", "spmm"}:
        print(__doc__[__doc__.index("Equal on"):].strip())
        tuned = "the library's first choices" if args.max_batch else f"timed once (FRUGAL_AUTOTUNE={args.scratch}/autotune.tsv)"
        print(f"Convolutions: ours {tuned}, PyTorch's cudnn.benchmark=True.", flush=True)
    for name in args.names:
        if name == "all":
            run_all(args)
        elif name == "roofline":
            roofline(args)
        elif name == "spmm":
            spmm(args)
        elif name == "sanitize":
            sanitize(args)
        elif args.max_batch:
            max_batch(args, name)
        else:
            for batch in [args.batch] if args.batch else WORKLOADS[name][1]:
                compare(args, name, batch)


if __name__ == "__main__":
    main()
