"""A ResNet-20 on arrays of NumPy, with activations in 4 bits on average.

usage: resnet_on_arrays.py [EPOCHS]
"""

import sys
import tempfile

import numpy as np

import frugal

draw = np.random.default_rng(0)
classes = draw.integers(0, 4, 640)
pictures = draw.normal(0, 0.3, (640, 16, 16, 3)).astype(np.float32)
for picture, label in zip(pictures, classes):  # a bright corner, another one for each class
    y, x = divmod(int(label), 2)
    picture[8 * y : 8 * y + 8, 8 * x : 8 * x + 8] += 0.5

with tempfile.TemporaryDirectory() as folder:
    data = frugal.save_arrays(
        folder + "/data", train=(pictures[:512], classes[:512]), test=(pictures[512:], classes[512:])
    )
    config = {
        "model": {"name": "resnet20"},
        "data": {"name": "tensors", "dir": data, "batch_size": 64},
        "optim": {"name": "sgd", "lr": 0.05},
        "compression": {"policy": "gact", "bits": 4},
        "train": {"epochs": int(sys.argv[1]) if len(sys.argv) > 1 else 3},
    }
    run = frugal.train(config, out=folder + "/run", quiet=True)
    print("test accuracy:", run.summary["final"]["test_accuracy"])
    print("activations:", run.summary["memory"]["activation_bytes"], "bytes")
    for guesses in run.load().predict(pictures[512:515], top=1):
        number, name, probability = guesses[0]
        print(f"class {number} with probability {probability:.2f}")
