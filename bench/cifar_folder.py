#!/usr/bin/env python3
"""Makes a folder of JPEGs from CIFAR-10's binary files.

usage: cifar_folder.py CIFAR_FOLDER OUT [--train 2000] [--test 1000] [--size 256] [--quality 95]

OUT has train/CLASS/NUMBER.jpg and test/CLASS/NUMBER.jpg: the first pictures of the files, enlarged to SIZE x SIZE. So a
run on the folder can be compared with a run on the same pictures of the binary files:

  frugal train configs/image_folder.json --set data.dir=OUT --set data.image_size=32 --set data.resize=32 \
    --set data.crop_area=0 --set model.name=resnet20
  frugal train configs/image_folder.json --set data.name=cifar10 --set data.dir=CIFAR_FOLDER --set data.workers=2 \
    --set data.train_samples=2000 --set data.test_samples=1000 --set data.normalize=imagenet --set model.name=resnet20

Needs Pillow (Debian: python3-pil).
"""
import argparse
import os
import sys

from PIL import Image

RECORD = 1 + 3 * 32 * 32  # bytes: the class, then planes of red, green and blue


def records(folder, names, count):
    data = b""
    for name in names:
        with open(os.path.join(folder, name), "rb") as file:
            data += file.read()
        if len(data) >= count * RECORD:
            break
    if len(data) < count * RECORD:
        sys.exit(f"expected {count} pictures in {folder}, got {len(data) // RECORD}")
    return [data[i * RECORD:(i + 1) * RECORD] for i in range(count)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cifar")
    parser.add_argument("out")
    parser.add_argument("--train", type=int, default=2000)
    parser.add_argument("--test", type=int, default=1000)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--quality", type=int, default=95)
    args = parser.parse_args()
    inner = os.path.join(args.cifar, "cifar-10-batches-bin")
    cifar = inner if os.path.isdir(inner) else args.cifar
    with open(os.path.join(cifar, "batches.meta.txt")) as file:
        classes = file.read().split()
    batches = [f"data_batch_{i}.bin" for i in range(1, 6)]
    for part, names, count in [("train", batches, args.train), ("test", ["test_batch.bin"], args.test)]:
        some = records(cifar, names, count)
        for i, record in enumerate(some):
            planes = [Image.frombytes("L", (32, 32), record[1 + 1024 * c:1025 + 1024 * c]) for c in range(3)]
            picture = Image.merge("RGB", planes).resize((args.size, args.size), Image.BICUBIC)
            path = os.path.join(args.out, part, classes[record[0]], f"{i:05}.jpg")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            picture.save(path, quality=args.quality)


if __name__ == "__main__":
    main()
