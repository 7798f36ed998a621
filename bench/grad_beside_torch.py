#!/usr/bin/env python3
"""`frugal grad` beside PyTorch on torchvision's networks for segmentation, with random weights.

usage: grad_beside_torch.py [--frugal build/release/bin/frugal] [--side 96] [--batch 2] [--aux] [--bytes] NAME ...
  NAME: fcn_resnet50, fcn_resnet101, deeplabv3_resnet50, deeplabv3_resnet101

Both compute the loss and all gradients of one batch without dropout and with the batch's
statistics. The reference is PyTorch in f64. Prints for the loss, and for the gradients of all
parameters together, the relative error of PyTorch's f32 and of ours. With --bytes it prints the
bytes that PyTorch saves for the backward pass instead. With --aux the network has its second head,
whose loss counts half. Needs python3-torchvision.
"""
import argparse
import json
import pathlib
import struct
import subprocess
import tempfile

import numpy
import torch
import torchvision

NAMES = ["fcn_resnet50", "fcn_resnet101", "deeplabv3_resnet50", "deeplabv3_resnet101"]
CLASSES, IGNORED = 21, 255
DTYPES = {"float32": "F32", "int64": "I64"}


def write(path, tensors):
    header, at, parts = {}, 0, []
    for name, tensor in tensors.items():
        values = numpy.ascontiguousarray(tensor.detach().numpy())
        shape = list(tensor.shape)
        header[name] = {"dtype": DTYPES[str(values.dtype)], "shape": shape,
                        "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
        parts.append(values.tobytes())
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def read(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    names = {v: k for k, v in DTYPES.items()}
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            values = numpy.frombuffer(data[8 + length + begin:8 + length + end],
                                      names[entry["dtype"]])
            tensors[name] = torch.from_numpy(values.reshape(entry["shape"]).astype(numpy.float64))
    return tensors


def loss_of(model, images, target):
    def entropy(logits):
        return torch.nn.functional.cross_entropy(logits, target, ignore_index=IGNORED)

    out = model(images)
    return entropy(out["out"]) + (0.5 * entropy(out["aux"]) if "aux" in out else 0)


def gradients(model, images, target):
    model.zero_grad()
    loss = loss_of(model, images, target)
    loss.backward()
    return loss.item(), {n: p.grad.double().clone() for n, p in model.named_parameters()}


def saved_bytes(model, images, target):
    """Bytes of the tensors that PyTorch keeps for backward, without parameters, each counted once."""
    kept, seen, parameters = [], {}, {p.data_ptr() for p in model.parameters()}

    def pack(tensor):
        kept.append(tensor)
        if tensor.data_ptr() not in parameters:
            bytes_here = tensor.numel() * tensor.element_size()
            seen[tensor.data_ptr()] = max(seen.get(tensor.data_ptr(), 0), bytes_here)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss_of(model, images, target)
    return sum(seen.values())


def error(found, expected):
    """The length of all differences over the length of all expected values."""
    difference = sum(((found[n] - expected[n]) ** 2).sum().item() for n in expected)
    return (difference / sum((expected[n] ** 2).sum().item() for n in expected)) ** 0.5


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", choices=NAMES)
    parser.add_argument("--frugal", default=str(here.parent / "build/release/bin/frugal"))
    parser.add_argument("--side", type=int, default=96)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--aux", action="store_true")
    parser.add_argument("--bytes", action="store_true")
    args = parser.parse_args()
    for name in args.names:
        torch.manual_seed(1)
        model = getattr(torchvision.models.segmentation, name)(
            weights_backbone=None, num_classes=CLASSES, aux_loss=args.aux)
        images = torch.randn(args.batch, 3, args.side, args.side)
        target = torch.randint(0, CLASSES, (args.batch, args.side, args.side))
        if args.bytes:
            print(f"{name}  {saved_bytes(model, images, target) / 1e6:.1f} MB", flush=True)
            continue
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        target[torch.rand(target.shape) < 0.1] = IGNORED
        with tempfile.TemporaryDirectory() as name_of_folder:
            folder = pathlib.Path(name_of_folder)
            write(folder / "weights", model.state_dict())
            write(folder / "batch", {"input": images, "target": target})
            config = {"model": {"name": name, "dropout": 0, "aux_loss": args.aux},
                      "compression": {"level": "L0"}}
            (folder / "config.json").write_text(json.dumps(config))
            subprocess.run([args.frugal, "grad", folder / "config.json", "--weights",
                            folder / "weights", "--batch", folder / "batch", "--out",
                            folder / "out"], check=True, capture_output=True)
            ours = read(folder / "out")
        loss, plain = gradients(model, images, target)
        exact_loss, exact = gradients(model.double(), images.double(), target)
        grads = {n: ours["grad/" + n] for n in exact}
        missing = [n for n in ours if n.startswith("grad/") and n[5:] not in exact]
        assert not missing, missing
        print(f"{name}  loss {exact_loss:.6f}  error of f32: PyTorch "
              f"{abs(loss / exact_loss - 1):.1e}, ours {abs(ours['loss'].item() / exact_loss - 1):.1e}"
              f"  {len(exact)} gradients: PyTorch {error(plain, exact):.1e}, ours "
              f"{error(grads, exact):.1e}", flush=True)


if __name__ == "__main__":
    main()
