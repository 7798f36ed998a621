"""An op of one's own, in a network that is a list of layers, on batches from a generator.

usage: own_op.py [STEPS]
"""

import sys

import numpy as np

import frugal

# y = x + sin(x)^2. Its gradient is not linear in x, so x is kept exactly. Ref: Ziyin et al. 2020.
snake = frugal.op("snake", lambda x: x + np.sin(x) ** 2, lambda dy, x: dy * (1 + np.sin(2 * x)))


def batches(count):
    """Points near the corners of a square, and whether their corner's coordinates differ."""
    draw = np.random.default_rng(0)
    for _ in range(count):
        corners = draw.integers(0, 2, (512, 2))
        points = corners + draw.normal(0, 0.1, (512, 2))
        yield points.astype(np.float32), (corners[:, :1] != corners[:, 1:]).astype(np.float32)


first = frugal.sequential([{"linear": 32}], sample=[2], outputs=32)
last = frugal.sequential([{"linear": 1}], sample=[32], outputs=1, seed=1)
parameters = {f"{name}.{key}": one for name, net in (("first", first), ("last", last)) for key, one in net.parameters().items()}
optimizer = frugal.optimizer("adam", parameters)
policy = frugal.policy(bits=4, min_elements=1024)
for x, y in batches(int(sys.argv[1]) if len(sys.argv) > 1 else 300):
    with policy:
        loss = frugal.mse_loss(last(snake(first(x))), y)
    loss.backward()
    optimizer.step(0.01)
    optimizer.zero_grad()
print(f"loss {loss.item():.4f}")
