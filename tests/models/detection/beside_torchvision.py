"""Compares losses and gradients of the detection networks with torchvision's in f64. `frugal grad
--f64` must agree to rounding: boxes of regions are f32 here, all else is f64. In f32 Frugal must be
as close as torchvision's own f32 is, except where rounding decides: a region at the edge of the
picture, or with a score or an overlap close to another's, is proposed by one program and not by the
other. Then the losses of the head see other regions. So these losses, and the gradients, are
printed and not judged. Needs python3-torchvision; made with 0.14.1. Takes minutes of one core.
usage: beside_torchvision.py FRUGAL [retinanet_resnet50_fpn] [fasterrcnn_resnet50_fpn]"""
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import torch
import torchvision.models.detection

SIDE, CLASSES = 128, 4
DTYPES = {"F32": numpy.float32, "F64": numpy.float64, "I64": numpy.int64}
OF_REGIONS = ["loss_classifier", "loss_box_reg"]


def write(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        array = numpy.array(tensor.detach().numpy(), order="C")
        kind = {numpy.dtype(v): k for k, v in DTYPES.items()}[array.dtype]
        header[name] = {"dtype": kind, "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def read(path):
    raw = Path(path).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    tensors = {}
    for name, info in header.items():
        if name != "__metadata__":
            begin, end = (8 + size + at for at in info["data_offsets"])
            values = numpy.frombuffer(raw[begin:end], DTYPES[info["dtype"]])
            tensors[name] = torch.from_numpy(values.reshape(info["shape"]).copy())
    return tensors


def network(name):
    net = getattr(torchvision.models.detection, name)(
        weights=None, weights_backbone=None, num_classes=CLASSES, trainable_backbone_layers=5)
    net.transform.min_size, net.transform.max_size = (SIDE,), SIDE
    net.transform.image_mean, net.transform.image_std = [0.0] * 3, [1.0] * 3
    return net.train()


def step(name, state, images, targets, dtype):
    net = network(name)
    net.load_state_dict(state)
    net.to(dtype)
    terms = net([image.to(dtype) for image in images],
                [{"boxes": t["boxes"].to(dtype), "labels": t["labels"]} for t in targets])
    sum(terms.values()).backward()
    return ({k: v.detach().double() for k, v in terms.items()},
            {k: p.grad.double() for k, p in net.named_parameters()})


def distance(found, exact):
    return float((found.double() - exact).norm() / exact.norm().clamp(min=1e-30))


def run(binary, folder, more):
    subprocess.run([binary, "grad", f"{folder}/c.json", "--weights", f"{folder}/w", "--batch",
                    f"{folder}/b", "--out", f"{folder}/g", *more], check=True)
    return read(f"{folder}/g")


def compare(binary, name):
    torch.manual_seed(3)
    net = network(name)
    with torch.no_grad():  # answers that differ, so that no rounding decides which are the best
        for key, p in net.named_parameters():
            if key in ("rpn.head.cls_logits.weight", "rpn.head.bbox_pred.weight"):
                p.mul_(20)
    state = net.state_dict()
    images = torch.randn(2, 3, SIDE, SIDE)
    boxes = torch.tensor([[5.0, 10, 35, 45], [20, 15, 60, 30], [2, 3, 15, 12]]) * (SIDE / 64)
    targets = [{"boxes": boxes, "labels": torch.tensor([1, 3, 2])},
               {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64)}]
    exact_terms, exact = step(name, state, images, targets, torch.float64)
    own_terms, own = step(name, state, images, targets, torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        write(f"{folder}/w", state)
        batch = {"input": images}
        for i, target in enumerate(targets):
            batch[f"boxes.{i}"], batch[f"labels.{i}"] = target["boxes"], target["labels"]
        write(f"{folder}/b", batch)
        config = {"model": {"name": name}, "compression": {"bits": 0}}
        if name.startswith("faster"):
            config["model"]["deterministic_sampling"] = True
        Path(f"{folder}/c.json").write_text(json.dumps(config))
        wide, found = run(binary, folder, ["--f64"]), run(binary, folder, [])
    good = True
    for key, value in exact_terms.items():
        f64, f32 = distance(wide[f"loss/{key}"], value), distance(found[f"loss/{key}"], value)
        theirs = distance(own_terms[key], value)
        good &= f64 <= 1e-6 and (key in OF_REGIONS or f32 <= max(10 * theirs, 1e-5))
        print(f"{name}  {key}: {float(value):.6f}  f64 {f64:.1e}  f32 {f32:.1e}  torchvision f32 "
              f"{theirs:.1e}", flush=True)
    rows = [(distance(wide[f"grad/{k}"], g), k) for k, g in exact.items()]
    good &= max(rows)[0] <= 1e-5
    print(f"{name}  {len(rows)} gradients: f64 at most {max(rows)[0]:.1e} ({max(rows)[1]})",
          flush=True)
    for who, each in (("f32", {k: found[f"grad/{k}"] for k in exact}), ("torchvision f32", own)):
        off = sorted(distance(each[k], g) for k, g in exact.items())
        print(f"{name}  gradients of {who}: at most {off[-1]:.1e}, median {off[len(off) // 2]:.1e}",
              flush=True)
    return good


if len(sys.argv) < 2:
    sys.exit("expected the path of the binary frugal; " + __doc__[__doc__.index("usage"):])
torch.randperm = lambda n, **_: torch.arange(n)  # samplers take the first candidates in order
names = sys.argv[2:] or ["retinanet_resnet50_fpn", "fasterrcnn_resnet50_fpn"]
sys.exit(0 if all([compare(sys.argv[1], name) for name in names]) else 1)
