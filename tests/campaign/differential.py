#!/usr/bin/env python3
"""Computes the same thing in two ways, for networks that are drawn, and compares.

usage: differential.py PROGRAM [--networks N] [--seed S] [--part PART ...] [--only I] [--zoo N]

Network I of seed S is always the same one. Parts:
  torch     loss, outputs, gradients and statistics in f64 beside PyTorch's in f64 (needs PyTorch)
  f32       the same in f32 beside those in f64
  lossless  what is kept whole, rebuilt, recomputed or moved to a file gives the same bits
  threads   one thread and two give the same bits
  plan      a training takes the bytes that the plan said
  onnx      the exported network beside the program's own outputs (needs Python's onnx)
What lacks its library is left out, and the last line says so.

--networks: how many networks are lists of layers (100). --zoo: how many are networks of the program
with options that are drawn (10; these need PyTorch). --only I: network I alone, whose files stay;
with --networks 0 that of the zoo.
Exit status: 0, nothing was wrong; 1, something was; 2, a mistake on the command line.
"""
import argparse
import array
import json
import math
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import random_networks

try:
    import torch
    torch.set_num_threads(1)
    import torch_networks
    import torch_zoo
except ImportError:
    torch = None
try:
    sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent / "export"))
    import check_onnx
except ImportError:
    check_onnx = None

PARTS = ["torch", "f32", "lossless", "threads", "plan", "onnx"]
TYPES = {"F32": "f", "F64": "d", "I64": "q"}
# Both programs compute in f64, with 2^-53 for each operation. Sums have some thousand terms, and a
# norm of few elements enlarges what came before it by up to eps^-1/2. A mistake in a formula is
# larger than this by far.
F64_BOUND = 2.0 ** -30
# What a thread needs for the tiles of attention is not in a plan (ops/sequence/attention_tiles.cpp).
ATTENTION_TILES = 1 << 18


def write_tensors(path, tensors):
    """tensors: name -> (type, shape, array)"""
    header, parts, at = {}, [], 0
    for name, (kind, shape, values) in tensors.items():
        data = values.tobytes()
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
        parts.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def read_tensors(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            values = array.array(TYPES[entry["dtype"]])
            values.frombytes(data[8 + size + begin:8 + size + end])
            tensors[name] = (entry["dtype"], entry["shape"], values)
    return tensors


def norm(values):
    return math.sqrt(math.fsum(x * x for x in values))


def distance(a, b):
    return math.sqrt(math.fsum((x - y) ** 2 for x, y in zip(a, b)))


class Wrong(Exception):
    pass


class Case:
    """A network with its weights and a batch, in a folder."""

    def __init__(self, program, folder, seed, number, zoo):
        self.program, self.folder, self.number, self.zoo = program, folder, number, zoo
        self.draw = random.Random(f"{seed} {number}" + (" zoo" if zoo else ""))
        self.make(seed)
        self.grads = {}

    def make(self, seed):
        draw = self.draw
        self.samples, self.classes, self.reference = draw.randint(2, 5), draw.randint(2, 5), None
        vocabulary, length = draw.randint(5, 12), draw.randint(2, 9)
        if self.zoo:
            self.drops = False
            kind, model, self.reference, shape = torch_zoo.draw_network(draw, self.classes)
        else:
            self.drops = draw.randrange(100) < 15
            drawer = random_networks.Drawer(f"{seed} {self.number}", self.drops)
            kind = draw.choice(["image", "image", "image", "text", "tokens"])
            modules, shape = drawer.image_network() if kind == "image" else (
                drawer.text_network(vocabulary, length, kind == "tokens"), None)
            model = {"name": "sequential", "modules": modules}
        if kind == "image":
            data = {"name": "random", "shape": shape, "classes": self.classes, "train_samples": 3 * self.samples,
                    "test_samples": self.samples, "batch_size": self.samples, "workers": 0}
            height, width, channels = shape
            self.batch = {"input": normal(draw, [self.samples, channels, height, width])}
        else:
            model["vocab_size"] = vocabulary
            data = {"name": "random_tokens", "max_length": length, "train_samples": 3 * self.samples, "batch_size": self.samples}
            if kind == "tokens":
                self.classes = vocabulary
                data["train_samples"] = 3 * self.samples * length + 1  # tokens
            else:
                data.update(test_samples=self.samples, classes=self.classes)
            self.batch = {"input_ids": whole(draw, [self.samples, length], vocabulary)}
            if draw.randrange(2):
                lengths = [length] + [draw.randint(1, length) for _ in range(self.samples - 1)]
                mask = array.array("q", (int(t < n) for n in lengths for t in range(length)))
                self.batch["attention_mask"] = ("I64", [self.samples, length], mask)
        places = self.batch["input_ids"][1] if kind == "tokens" else [self.samples]
        self.batch["target"] = whole(draw, places, self.classes)
        self.smoothing = draw.choice([0, 0, 0.1])
        self.config = {"model": model, "data": data, "threads": 1, "train": {"epochs": 1},
                       "optim": {"name": "sgd", "lr": 0.01, "momentum": 0.9}, "compression": {"preset": "lossless"}}
        if self.smoothing:
            self.config["train"]["label_smoothing"] = self.smoothing

    def start(self, *words):
        environment = dict(os.environ, OMP_WAIT_POLICY="passive", FRUGAL_LOG="warn", TMPDIR=str(self.folder))
        environment.pop("OMP_NUM_THREADS", None)
        done = subprocess.run([self.program, *map(str, words)], env=environment, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            raise Wrong(f"{words[0]} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-400:]}")
        return done.stdout

    def prepare(self):
        """Files: the configuration, weights with random values, the batch."""
        self.path = self.folder / "config.json"
        self.path.write_text(json.dumps(self.config))
        self.start("export", self.path, "--random", "--output", self.folder / "made.safetensors")
        self.weights = {}
        for name, (kind, shape, values) in read_tensors(self.folder / "made.safetensors").items():
            if kind == "F32":
                values = self.weight(name, shape, len(values))
            self.weights[name] = (kind, shape, values)
        write_tensors(self.folder / "weights", self.weights)
        write_tensors(self.folder / "batch", self.batch)

    def weight(self, name, shape, count):
        draw = self.draw
        if name.endswith("running_var"):
            return array.array("f", (draw.uniform(0.5, 2) for _ in range(count)))
        if len(shape) < 2:  # gains near 1, and other offsets
            around = 1 if name.endswith("weight") else 0
            return array.array("f", (around + draw.uniform(-0.3, 0.3) for _ in range(count)))
        gain = draw.uniform(0.8, 1.6) / math.sqrt(max(1, count // shape[0]))
        return array.array("f", (gain * draw.gauss(0, 1) for _ in range(count)))

    def gradients(self, *words, batch="batch", weights="weights"):
        """What `frugal grad` writes; each call with the same words is made once."""
        key = (words, batch, weights)
        if key not in self.grads:
            out = self.folder / "out"
            self.start("grad", self.path, "--weights", self.folder / weights, "--batch", self.folder / batch, "--out", out, *words)
            self.grads[key] = read_tensors(out)
        return self.grads[key]

    # ---- what is compared
    def torch(self):
        if self.drops:
            return False
        found, expected = values_of(self.gradients("--f64")), self.by_torch(torch.float64)
        if "output" not in found:  # a loss that is computed in parts
            expected.pop("output")
        self.compare("PyTorch", found, expected, F64_BOUND)
        return True

    def by_torch(self, dtype):
        """What `frugal grad` writes, by PyTorch."""
        torch.set_default_dtype(dtype)
        batch = {name: as_torch(tensor, dtype) for name, tensor in self.batch.items()}
        state = {name: as_torch(tensor, dtype) for name, tensor in self.weights.items()}
        if self.zoo:
            parameters = {name: t.requires_grad_() for name, t in state.items()
                          if t.is_floating_point() and not name.endswith(("running_mean", "running_var"))}
            logits = self.reference(state, batch)
            buffers = {name: t for name, t in state.items() if name not in parameters}
        else:
            x, mask = batch.get("input", batch.get("input_ids")), batch.get("attention_mask")
            network = torch_networks.network(self.config["model"]["modules"], x, mask, self.classes)
            network.load_state_dict(state)  # Errors: other names or shapes
            logits = network(x, mask)
            parameters, buffers = dict(network.named_parameters()), dict(network.named_buffers())
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), batch["target"].flatten(), label_smoothing=self.smoothing)
        loss.backward()
        made = {"loss": loss, "output": logits}
        for name, parameter in parameters.items():
            made["grad/" + name] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, buffer in buffers.items():
            made["buffer/" + name] = buffer
        return {name: tensor.detach().double().flatten().tolist() for name, tensor in made.items()}

    def compare(self, what, found, expected, bound):
        if sorted(found) != sorted(expected):
            raise Wrong(f"{what}: other tensors: {sorted(set(found) ^ set(expected))}")
        whole = norm([x for name in expected if name.startswith("grad/") for x in expected[name]])
        for name in expected:
            size = norm(expected[name])
            off = distance(found[name], expected[name])
            most = bound * (size + (2.0 ** -2 * whole if name.startswith("grad/") else 1e-6))
            if not off <= most:
                raise Wrong(f"{what}: {name} differs by {off:.2e} of {size:.2e} (gradients {whole:.2e}), allowed {most:.2e}")

    def f32(self):
        if self.drops:
            return False
        exact = values_of(self.gradients("--f64"))
        # Rounding acts as a change of all weights and inputs by a few units in the last place. How
        # much the gradients change by that is measured.
        moved = {}
        for name, (kind, shape, values) in self.weights.items():
            if kind == "F32":
                values = array.array("f", (x * (1 + self.draw.uniform(-1, 1) * 2.0 ** -19) for x in values))
            moved[name] = (kind, shape, values)
        write_tensors(self.folder / "moved", moved)
        change = self.gradients("--f64", weights="moved")
        found, beside = values_of(self.gradients()), None
        whole = norm([x for name in exact if name.startswith("grad/") for x in exact[name]])
        for name, values in exact.items():
            size, off = norm(values), distance(found[name], values)
            if name.startswith("grad/") and size < 2.0 ** -20 * whole:
                continue  # terms that cancel: what is left says how they were rounded
            most = 32 * distance(change[name][2], values) + 2.0 ** -13 * (size + whole / 2)
            if not off <= most and torch is not None:  # what rounds the same formulas in another order
                beside = beside or self.by_torch(torch.float32)
                most = max(most, 8 * distance(beside[name], values))
            if not off <= most:
                raise Wrong(f"f32: {name} differs by {off:.2e} of {size:.2e} (gradients {whole:.2e}), allowed {most:.2e}")
        return True

    def same_bits(self, what, first, second, but=()):
        for name, (_, _, values) in first.items():
            if name in but:
                continue
            if values.tobytes() != second[name][2].tobytes():
                raise Wrong(f"{what}: {name} differs by {distance(values, second[name][2]):.1e} of {norm(values):.1e}")

    def lossless(self):
        whole = self.gradients("--set", "compression.recipes=false")
        self.same_bits("rebuilt", whole, self.gradients())
        self.same_bits("moved", whole, self.gradients("--set", f"compression.offload={self.folder}"))
        try:
            recomputed = self.gradients("--set", "train.checkpointing=true")
        except Wrong as error:
            if "train.checkpointing" not in str(error):
                raise
            return True  # a network without blocks
        self.same_bits("recomputed", whole, recomputed)
        return True

    def threads(self):
        one, two = self.gradients(), self.gradients("--set", "threads=2")
        # oneDNN's threads share the sums of a convolution's weight gradient, and without AVX-512
        # those of products.
        shared = {"grad/" + name for name, (_, shape, _) in self.weights.items() if len(shape) >= 3}
        if not has_avx512():
            self.compare("two threads", values_of(two), values_of(one), 2.0 ** -12)
            return True
        self.same_bits("two threads", one, two, shared)
        return True

    def plan(self):
        levels = json.loads(self.start("plan", self.path, "--json"))["levels"]
        out = self.folder / "run"
        shutil.rmtree(out, ignore_errors=True)
        self.start("train", self.path, "--out", out, "--quiet")
        took = json.loads((out / "summary.json").read_text())["memory"]
        said = levels[0]["memory"]
        attends = self.zoo or '"attention"' in json.dumps(self.config["model"])
        for key in ("activation_bytes", "packed_bytes", "peak_bytes"):
            # What kernels take beside tensors is estimated: docs/guide/plan.md says how well.
            off = 0 if key != "peak_bytes" else took[key] / 50 + (ATTENTION_TILES if attends else 0)
            if abs(said[key] - took[key]) > off:
                raise Wrong(f"plan: {key}: said {said[key]}, took {took[key]}")
        return True

    def onnx(self):
        model, example = self.folder / "model.onnx", self.folder / "example.safetensors"
        self.start("export", self.path, "--checkpoint", self.folder / "weights", "--output", model, "--example", example)
        try:
            check_onnx.check(str(model), str(example), False)
        except Exception as error:  # of the library, too
            raise Wrong(f"onnx: {type(error).__name__}: {error}") from error
        return True


def has_avx512():
    try:
        return "avx512f" in pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def values_of(tensors):
    return {name: values for name, (_, _, values) in tensors.items()}


def as_torch(tensor, dtype):
    kind, shape, values = tensor
    return torch.tensor(values.tolist(), dtype=dtype if kind == "F32" else torch.int64).reshape(shape)


def normal(draw, shape):
    return "F32", shape, array.array("f", (draw.gauss(0, 1) for _ in range(math.prod(shape))))


def whole(draw, shape, below):
    return "I64", shape, array.array("q", (draw.randrange(below) for _ in range(math.prod(shape))))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--networks", type=int, default=100)
    parser.add_argument("--zoo", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--only", type=int)
    arguments = parser.parse_args()
    parts = arguments.part or PARTS
    lacks = {"torch": torch is None, "onnx": check_onnx is None}
    left_out = [part for part in parts if lacks.get(part)]
    parts = [part for part in parts if part not in left_out]
    compared, wrong = dict.fromkeys(parts, 0), 0
    of_zoo = arguments.zoo if torch is not None else 0
    cases = [(number, False) for number in range(arguments.networks)] + [(number, True) for number in range(of_zoo)]
    if arguments.only is not None:
        cases = [(arguments.only, arguments.networks == 0)]
    for number, zoo in cases:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="frugal-differential-"))
        try:
            case = Case(arguments.program, folder, arguments.seed, number, zoo)
            done = None
            try:
                case.prepare()
                for done in parts:
                    compared[done] += getattr(case, done)()
            except Wrong as error:
                wrong += 1
                print(f"WRONG: network {number} of seed {arguments.seed}{' of the zoo' if zoo else ''}: {error}", flush=True)
        finally:
            if arguments.only is None:
                shutil.rmtree(folder)
            else:
                print(f"files: {folder}")
    print(f"{len(cases)} networks of seed {arguments.seed}: " + ", ".join(f"{part} {count}" for part, count in compared.items()) +
          f"; {wrong} wrong" + (f"; left out for lack of a library: {', '.join(left_out)}" if left_out else ""))
    return 1 if wrong or not any(compared.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
