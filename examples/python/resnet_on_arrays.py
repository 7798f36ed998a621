"""A ResNet-20 on arrays of NumPy in a loop of one's own, with activations in 4 bits.

usage: resnet_on_arrays.py [EPOCHS]
"""

import sys

import numpy as np

import frugal

draw = np.random.default_rng(0)
classes = draw.integers(0, 4, 640)
pictures = draw.normal(0, 0.3, (640, 16, 16, 3)).astype(np.float32)
for picture, label in zip(pictures, classes):  # a bright corner, another one for each class
    y, x = divmod(int(label), 2)
    picture[8 * y : 8 * y + 8, 8 * x : 8 * x + 8] += 0.5

network = frugal.network("resnet20", num_classes=4)
optimizer = frugal.optimizer("sgd", network, momentum=0.9)
policy = frugal.policy(bits=4)
for epoch in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
    for batch in draw.permutation(512).reshape(8, 64):
        with policy:
            loss = frugal.cross_entropy(network(pictures[batch]), classes[batch])
        kept = frugal.memory()
        loss.backward()
        optimizer.step(0.05)
        optimizer.zero_grad()
    print(f"epoch {epoch + 1}: loss {loss.item():.3f}, {kept['packed'] + kept['activation']} bytes kept")
with frugal.no_grad():
    scores = np.asarray(network(pictures[512:], training=False).value)
print("test accuracy:", np.mean(scores.argmax(1) == classes[512:]))
