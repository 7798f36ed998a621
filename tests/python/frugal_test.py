"""The package frugal without PyTorch: tensors, runs, errors, signals."""

import contextlib
import ctypes
import gc
import importlib
import json
import mmap
import operator
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import warnings

try:
    import numpy as np
except ImportError:
    print("skipped: this Python has no numpy (Debian: python3-numpy)")
    sys.exit(77)

import frugal
from frugal import _frugal

CONFIG = {
    "model": {"name": "mlp", "hidden": [16]},
    "data": {"name": "tensors", "layout": "rows", "batch_size": 16},
    "optim": {"name": "sgd", "lr": 0.1},
    "compression": {"policy": "gact", "bits": 4},
    "train": {"epochs": 2, "log_interval": 1},
    "threads": 1,
}


def arrays(count=64, seed=0):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(count, 8)).astype(np.float32)
    return x, (x[:, 0] + x[:, 1] > 0).astype(np.int64)


class InFolder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        frugal.save_arrays(self.path("data"), train=arrays(), test=arrays(32, 1))
        self.config = json.loads(json.dumps(CONFIG))
        self.config["data"]["dir"] = self.path("data")

    def path(self, name):
        return os.path.join(self.folder.name, name)


class Tensors(unittest.TestCase):
    def test_shares_memory_both_ways(self):
        for dtype in (np.float64, np.float32, np.float16, np.int64, np.int32, np.uint8, np.bool_):
            array = np.ones((2, 3), dtype)
            tensor = frugal.tensor(array)
            self.assertEqual(tensor.shape, (2, 3))
            back = np.asarray(tensor)
            self.assertEqual(back.dtype, array.dtype)
            array[1, 2] = 0
            self.assertEqual(back[1, 2], 0)
            back[0, 0] = 0
            self.assertEqual(array[0, 0], 0)
            self.assertEqual(back.__array_interface__["data"], array.__array_interface__["data"])

    def test_keeps_the_memory_alive(self):
        array = np.arange(1 << 18, dtype=np.float32)
        tensor = frugal.tensor(array)
        held = sys.getrefcount(array)
        view = np.asarray(tensor)
        del tensor
        gc.collect()
        self.assertEqual(sys.getrefcount(array), held)  # the view holds the tensor
        self.assertEqual(view[-1], (1 << 18) - 1)
        del view
        gc.collect()
        self.assertEqual(sys.getrefcount(array), held - 1)

    def test_views_with_strides(self):
        array = np.arange(24, dtype=np.float32).reshape(4, 6)
        tensor = frugal.tensor(array[:, ::2])
        self.assertEqual(tensor.strides, (6, 2))
        np.testing.assert_array_equal(np.asarray(tensor), array[:, ::2])
        np.testing.assert_array_equal(np.asarray(frugal.tensor(array.T)), array.T)

    def test_dlpack(self):
        array = np.arange(6, dtype=np.float32).reshape(2, 3)
        tensor = frugal.from_dlpack(array)
        self.assertEqual(tensor.__dlpack_device__(), (1, 0))
        back = np.from_dlpack(tensor)
        np.testing.assert_array_equal(back, array)
        array[0, 0] = 7
        self.assertEqual(back[0, 0], 7)
        capsule = tensor.__dlpack__()
        frugal.from_dlpack(capsule)
        with self.assertRaisesRegex(BufferError, "nobody took"):
            frugal.from_dlpack(capsule)
        del back, tensor
        gc.collect()
        self.assertEqual(array[0, 0], 7)

    def test_copies_what_cannot_be_shared(self):
        fixed = np.arange(4, dtype=np.float32)
        fixed.flags.writeable = False
        for source in (fixed, [1, 2, 3], 2.5, np.arange(4, dtype=">f4"), np.arange(5.0)[::-1]):
            np.testing.assert_array_equal(np.asarray(frugal.tensor(source)), np.asarray(source))
        np.asarray(frugal.tensor(fixed))[0] = 9
        self.assertEqual(fixed[0], 0)

        class Flags:  # as tensors of truth values of PyTorch 1.13
            def __dlpack__(self, **options):
                raise RuntimeError("Bool type is not supported by dlpack")

            def __array__(self, dtype=None, copy=None):
                return np.array([True, False])

        np.testing.assert_array_equal(np.asarray(frugal.tensor(Flags())), [True, False])

    def test_refuses(self):
        with self.assertRaises(TypeError):
            frugal.from_dlpack([1, 2])
        with self.assertRaisesRegex(ValueError, r"\[tensor\] expected numbers, got an array with 2 of 4 elements masked"):
            frugal.tensor(np.ma.masked_greater(np.arange(4.0), 1))
        self.assertEqual(frugal.tensor(np.ma.masked_greater(np.arange(4.0), 9)).shape, (4,))
        with self.assertRaises((TypeError, BufferError, ValueError)):
            frugal.tensor(np.array(["a"]))
        with self.assertRaisesRegex(BufferError, "writ|read"):
            _frugal.shared_tensor(b"1234")

    def test_empty_and_scalar(self):
        self.assertEqual(np.asarray(frugal.tensor(np.zeros((0, 3), np.float32))).shape, (0, 3))
        self.assertEqual(np.asarray(frugal.tensor(np.float32(3))).shape, ())

    def test_a_large_array_is_not_copied(self):
        array = np.zeros(1 << 26, np.float32)
        back = np.asarray(frugal.tensor(array))
        self.assertTrue(np.shares_memory(back, array))


class Loops(unittest.TestCase):
    """Training loops of one's own."""

    def gradient(self, bits, seed=0):
        network = frugal.network("resnet20", num_classes=4)
        draw = np.random.default_rng(0)
        x = draw.normal(size=(8, 16, 16, 3)).astype(np.float32)
        with frugal.policy(bits=bits, min_elements=256, seed=seed):
            loss = frugal.cross_entropy(network(x), np.arange(8) % 4)
            kept = frugal.memory()
        loss.backward()
        return np.concatenate([np.asarray(p.grad).ravel() for p in network.parameters().values()]), kept

    def test_policies(self):
        exact, raw = self.gradient(0)
        self.assertEqual(raw["packed"], 0)
        found, packed = self.gradient(4)
        kept = lambda memory: memory["activation"] + memory["packed"]  # noqa: E731
        self.assertLess(4 * kept(packed), kept(raw))
        error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
        self.assertTrue(0 < error < 0.5, error)
        self.assertTrue(np.array_equal(found, self.gradient(4)[0]))
        self.assertFalse(np.array_equal(found, self.gradient(4, seed=1)[0]))

    def test_blocks_end_in_any_order(self):
        network = frugal.network("mlp", in_features=64, num_classes=4, hidden=[64])
        x = np.ones((64, 64), np.float32)

        def packed():
            loss = network(x)
            return frugal.memory()["packed"], loss

        def steps(bits):
            with frugal.policy(bits=bits, min_elements=1):
                for _ in range(2):
                    yield packed()[0]

        alone = list(steps(2))
        a, b = steps(4), steps(2)
        four, two = next(a), next(b)
        self.assertGreater(four, two)
        a.close()  # b began after it, and goes on
        self.assertEqual(next(b), alone[0])
        b.close()
        self.assertEqual(packed()[0], 0)
        with self.assertRaisesRegex(frugal.Error, r"\[policy\] expected the end of a block that this thread has begun"):
            frugal.policy(bits=4).__exit__(None, None, None)
        # One object, in itself, and two that end out of order.
        block = frugal.no_grad()
        recorded = lambda: frugal.cross_entropy(network(x), np.zeros(64, np.int64)).requires_grad  # noqa: E731
        self.assertTrue(recorded())
        with block:
            with block:
                self.assertFalse(recorded())
            self.assertFalse(recorded())
        self.assertTrue(recorded())
        first, second = frugal.no_grad(), frugal.no_grad()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        self.assertFalse(recorded())
        second.__exit__(None, None, None)
        self.assertTrue(recorded())

    def test_a_policy_for_each_step_takes_no_memory(self):
        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        v = frugal.variable(np.ones((16, 16), np.float32), requires_grad=True)

        def steps(count):
            for _ in range(count):
                with frugal.policy(bits=4, min_elements=1):
                    loss = frugal.sum(frugal.exp(v * v))
                loss.backward()
                v.zero_grad()

        steps(2000)
        before = resident()
        steps(20000)
        self.assertLess(resident() - before, 20000 * 100)  # a policy takes more

    def test_learns(self):
        x, y = arrays(256)
        network = frugal.sequential([{"linear": 16}, "relu", {"linear": 2}], sample=[8], outputs=2)
        optimizer = frugal.optimizer("adamw", network, beta2=0.99)
        for _ in range(60):
            loss = frugal.cross_entropy(network(x), y)
            loss.backward()
            optimizer.step(0.05)
            optimizer.zero_grad()
        self.assertLess(loss.item(), 0.2)
        with frugal.no_grad():
            scores = np.asarray(network(x, training=False).value)
        self.assertGreater(np.mean(scores.argmax(1) == y), 0.9)
        weight = network.parameters()["0.weight"]
        np.asarray(weight.value)[:] = 0
        self.assertEqual(float(np.abs(np.asarray(network.weights()["0.weight"])).max()), 0)

    def test_weight_decay(self):
        rate, decay = 0.1, 0.3
        value = np.array([[3.0, -4.0], [1.0, 2.0]])
        gradients = [np.array([[1.0, 2.0], [-2.0, 0.5]]), np.array([[0.5, -1.0], [3.0, 1.0]])]

        def trained(name, shape, **options):
            v = frugal.variable(value.reshape(shape).copy(), requires_grad=True)  # may share its memory
            optimizer = frugal.optimizer(name, {"v": v}, **options)
            for gradient in gradients:
                frugal.sum(v * gradient.reshape(shape)).backward()
                optimizer.step(rate)
                optimizer.zero_grad()
            return np.asarray(v.value).reshape(2, 2)

        def adamw(decay):
            v, mean, square = value.copy(), 0, 0
            for t, gradient in enumerate(gradients, 1):
                mean = 0.9 * mean + 0.1 * gradient
                square = 0.999 * square + 0.001 * gradient**2
                v -= rate * decay * v
                v -= rate * mean / (1 - 0.9**t) / (np.sqrt(square / (1 - 0.999**t)) + 1e-8)
            return v

        def sgd(decay):
            v = value.copy()
            for gradient in gradients:
                v -= rate * (gradient + decay * v)
            return v

        for name, by_hand, options in (("adamw", adamw, {}), ("sgd", sgd, {"momentum": 0.0})):
            options["weight_decay"] = decay
            np.testing.assert_allclose(trained(name, (2, 2), **options), by_hand(decay), rtol=1e-12)
            # A vector decays only if it is asked for.
            np.testing.assert_allclose(trained(name, (4,), **options), by_hand(0), rtol=1e-12)
            np.testing.assert_allclose(
                trained(name, (4,), no_decay_norms=False, **options), by_hand(decay), rtol=1e-12
            )
        np.testing.assert_allclose(trained("adamw", (2, 2)), adamw(0), rtol=1e-12)
        for wrong in (-1.0, float("nan"), float("inf")):
            with self.assertRaisesRegex(frugal.Error, "expected a weight decay of at least 0, got"):
                trained("sgd", (2, 2), weight_decay=wrong)

    def test_state_in_8_bits(self):
        names = ("layers.0.weight", "model.embed_tokens.weight", "wte.weight")
        ones = {name: frugal.variable(np.ones((64, 64), np.float32), requires_grad=True) for name in names}
        optimizer = frugal.optimizer("adamw_8bit", ones)
        for each in ones.values():
            frugal.sum(each).backward()
        optimizer.step(0.1)
        whole = {"m/model.embed_tokens.weight", "m/wte.weight"}  # rows of embeddings differ in size
        state = {name for name in optimizer.state() if name.startswith(("m/", "m8/"))}
        self.assertEqual(state, whole | {"m8/layers.0.weight"})

    def test_ops_of_ones_own(self):
        x = np.linspace(-2, 2, 4096, dtype=np.float32).reshape(64, 64)
        upper = np.linspace(0, 1, 4096, dtype=np.float32).reshape(64, 64)

        def gradient(op, bits=0, step=1):
            v = frugal.variable(x, requires_grad=True)
            policy = frugal.policy(bits=bits, min_elements=16, seed=step)
            with policy:
                y = frugal.sum(op(v) * 0.5)
            packed = frugal.memory()["packed"]
            y.backward()
            return np.array(v.grad), packed

        for keeps, backward in (("inputs", lambda dy, x: 2 * dy * x), ("output", lambda dy, y: dy * y), ("nothing", lambda dy: 2 * dy)):
            forward = {"inputs": np.square, "output": np.exp, "nothing": lambda x: 2 * x}[keeps]
            wanted = np.float32(0.5) * {"inputs": 2 * x, "output": np.exp(x), "nothing": np.full_like(x, 2)}[keeps]
            for linear in (False, True):
                op = frugal.op("mine", forward, backward, keeps=keeps, linear=linear)
                np.testing.assert_allclose(gradient(op)[0], wanted, rtol=1e-6, atol=1e-6)
                found, packed = gradient(op, bits=4)
                if not linear or keeps == "nothing":  # it stays exact
                    self.assertEqual(packed, 0)
                    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
                else:
                    self.assertGreater(np.abs(found - wanted).max(), 1e-3)
                    mean = np.mean([gradient(op, 4, step)[0] for step in range(100)], 0)
                    self.assertLess(np.abs(mean - wanted).mean(), 0.3 * np.abs(found - wanted).mean())
        both = frugal.op("product", lambda a, b: a * b, lambda dy, a, b: (dy * b, None))
        a = frugal.variable(x, requires_grad=True)
        frugal.sum(both(a, upper)).backward()
        np.testing.assert_allclose(np.asarray(a.grad), upper)

    def test_errors(self):
        fails = frugal.op("fails", lambda x: x * 2, lambda dy, x: 1 / 0)
        v = frugal.variable(np.ones(4, np.float32), requires_grad=True)
        with self.assertRaises(ZeroDivisionError):
            frugal.sum(fails(v)).backward()
        with self.assertRaisesRegex(TypeError, r"\[op\] none: expected forward to give an array, got None"):
            frugal.op("none", lambda x: None, lambda dy, x: dy)(v)
        with self.assertRaisesRegex(TypeError, r"\[op\] none: expected backward to give an array, got None"):
            frugal.sum(frugal.op("none", lambda x: x * 2, lambda dy, x: None)(v)).backward()
        # What others read cannot be written.
        for forward, backward in (
            (lambda x: x.__imul__(2), lambda dy, x: dy),
            (lambda x: x * 2, lambda dy, x: dy.__imul__(2)),
        ):
            with self.assertRaisesRegex(ValueError, "read-only"):
                frugal.sum(frugal.op("writes", forward, backward)(v)).backward()
            self.assertEqual(np.asarray(v.value).tolist(), [1, 1, 1, 1])
        short = frugal.op("short", lambda x: x * 2, lambda dy, x: (dy, dy))
        with self.assertRaisesRegex(frugal.Error, "expected 1 gradients"):
            frugal.sum(short(v)).backward()
        with self.assertRaisesRegex(frugal.Error, "short"):
            frugal.sum(frugal.op("short", lambda x: x * 2, lambda dy, x: dy[:2])(v)).backward()
        with self.assertRaisesRegex(frugal.Error, "resnet18"):
            frugal.network("resnet19")
        with self.assertRaisesRegex(frugal.ConfigError, "width"):
            frugal.network("resnet18", width="wide")
        with self.assertRaises(frugal.ConfigError):
            frugal.optimizer("sgd", frugal.network("resnet20"), speed=3)
        with self.assertRaisesRegex(ValueError, "keeps"):
            frugal.op("mine", np.exp, np.exp, keeps="all")
        self.assertIn("resnet50", frugal.networks())
        self.assertIn("adamw", frugal.optimizers())

    def test_a_gradient_of_another_dtype_is_refused(self):
        for dtype in (np.float64, np.float16, np.int64, np.bool_):
            wide = frugal.op("wide", lambda x: x * 2, lambda dy, x, to=dtype: dy.astype(to))
            v = frugal.variable(np.ones(4, np.float32), requires_grad=True)
            with self.assertRaisesRegex(frugal.Error, "wide: expected a gradient of f32 for input 0"):
                frugal.sum(wide(v)).backward()

    def test_numbers_and_arrays_stand_on_either_side(self):
        a = np.array([[1.0, 4.0], [2.0, 0.5]], np.float32)
        b = np.array([[2.0, 0.5], [8.0, 1.0]], np.float32)
        fixed = b.copy()
        fixed.flags.writeable = False
        for other in (2, 2.0, np.float32(2), np.int64(2), np.float64(2), b, fixed, frugal.tensor(b), frugal.variable(b)):
            number = np.asarray(other, np.float32)
            for op in (operator.add, operator.sub, operator.mul, operator.truediv, operator.matmul):
                if op is operator.matmul and number.ndim == 0:
                    continue
                v = frugal.variable(a)
                for found, wanted in ((op(v, other), op(a, number)), (op(other, v), op(number, a))):
                    self.assertIsInstance(found, frugal.Variable)
                    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-6)
        v = frugal.variable(a, requires_grad=True)
        frugal.sum(3 * (1 - v) + 2 / v + b / v + b @ v).backward()
        wanted = -3 - (2 + b) / a**2 + b.sum(0)[:, None]
        np.testing.assert_allclose(np.asarray(v.grad), wanted, rtol=1e-6)
        np.testing.assert_array_equal(np.asarray(-v), -a)
        for other in ("a", None, [1.0], 1j):
            with self.assertRaisesRegex(TypeError, r"unsupported operand type\(s\) for \+"):
                v + other
        with self.assertRaises(frugal.Error):
            v + np.ones((2, 2))  # f64 beside f32

    def test_an_axis_or_several(self):
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        for axes in (0, 1, -1, [0], (0, 1), []):
            of = tuple(axes) if isinstance(axes, (list, tuple)) else axes
            for function, wanted in ((frugal.sum, np.sum), (frugal.mean, np.mean)):
                found = np.asarray(function(frugal.variable(x), axes))
                np.testing.assert_allclose(found, wanted(x, of if of != () else None), rtol=1e-6)

    def test_item_takes_one_number(self):
        self.assertEqual(frugal.variable([[3.0]]).item(), 3)
        for many in ([1.0, 2.0], np.ones((0, 2))):
            with self.assertRaisesRegex(frugal.Error, "expected one number"):
                frugal.variable(many).item()

    def test_messages_name_the_argument(self):
        v = frugal.variable(np.ones((2, 2), np.float32))
        optimizer = frugal.optimizer("sgd", {"v": v})
        for call, message in (
            (lambda: frugal.relu(np.ones(3)), r"\[relu\] expected x to be a variable, got ndarray of shape \[3\]; frugal.variable"),
            (lambda: frugal.reshape(v, 4), r"\[reshape\] expected shape to be a list of whole numbers, got int 4"),
            (lambda: frugal.reshape(v, [2.5]), r"\[reshape\] expected shape to be a list of whole numbers, got list \[2.5\]"),
            (lambda: frugal.sum(v, "a"), r"\[sum\] expected axes to be a whole number or a list of whole numbers, got str 'a'"),
            (lambda: frugal.sum(v, axis=0), r"\[sum\] expected the arguments x, axes; got another one, axis"),
            (lambda: optimizer.step("a"), r"\[step\] expected lr to be a number, got str 'a'"),
            (lambda: optimizer.step(), r"\[step\] expected lr, a number; got nothing for it"),
            (lambda: optimizer.zero_grad(1), r"\[zero_grad\] expected the arguments none; got 1 without a name"),
            (lambda: frugal.policy(bits=4.5), r"\[policy\] expected bits to be a whole number, got float 4.5"),
            (lambda: frugal.network("resnet20", seed=-1), r"\[network\] expected seed to be a whole number in its range, got -1"),
            (lambda: frugal.policy(seed=-3), r"\[policy\] expected seed to be a whole number in its range, got -3"),
            (lambda: frugal.policy(min_elements="a"), r"\[policy\] expected min_elements to be a whole number or None, got str 'a'"),
            (lambda: frugal.load(None), r"\[load\] expected run to be the name of a file or a folder, got None"),
            (lambda: frugal.network("resnet20")(v, training="a"), r"\[network\] expected training to be True or False, got str 'a'"),
            (lambda: frugal.network(3), r"\[network\] expected name to be a text, got int 3"),
            (lambda: frugal.optimizer("sgd", [v]), r"\[optimizer\] expected parameters to be a network or a dict of variables"),
            (lambda: frugal.optimizer("sgd", {"a": 3}), r"\[optimizer\] expected variables by name as parameters, got int for a"),
            (lambda: frugal.optimizer("sgd", {"v": v}, weight_decay="a"), r"\[optimizer\] expected weight_decay to be a number, got str 'a'"),
            (lambda: frugal.cross_entropy(v, [0, 1], label_smoothing="a"), r"\[cross_entropy\] expected label_smoothing to be a number"),
            (lambda: frugal.sequential("a", sample=[3], outputs=2), r"\[sequential\] expected layers to be a list, got str 'a'"),
            (lambda: frugal.op("a", 3, 4), r"\[op\] expected forward to be a function, got int 3"),
            (lambda: frugal.train({}, resume="yes"), r"\[train\] expected resume to be True or False, got str 'yes'"),
            (lambda: frugal.train({}, extend=1.5), r"\[train\] expected extend to be a whole number, got float 1.5"),
            (lambda: frugal.train({}, out=3), r"\[train\] expected out to be the name of a file or a folder, got int 3"),
            (
                lambda: frugal.load("runs/a", weights=3),
                r"\[load\] expected weights to be the name of a file or a folder, got int 3",
            ),
            (lambda: frugal.plan({}, memory=2.5), r"\[plan\] expected memory to be a text, got float 2.5"),
            (lambda: frugal.Run(3), r"\[run\] expected folder to be the name of a file or a folder, got int 3"),
        ):  # fmt: skip
            with self.assertRaisesRegex(TypeError, "^" + message):
                call()
        with self.assertRaisesRegex(ValueError, "64 bits"):
            frugal.optimizer("sgd", {"v": v}, momentum=2**70)

        def inner(x):
            raise TypeError("relu(): incompatible function arguments, says somebody else")

        with self.assertRaisesRegex(TypeError, "somebody else"):  # the errors of others stay
            frugal.op("mine", inner, inner)(v)

    def test_wrong_arguments(self):
        with self.assertRaisesRegex(ValueError, "min_elements"):
            frugal.policy(4, min_elements=-1)
        with self.assertRaisesRegex(BufferError, "NoneType"):
            frugal.tensor(None)

    def test_batches_of_a_generator(self):
        with tempfile.TemporaryDirectory() as folder:
            config = json.loads(json.dumps(CONFIG))
            config["data"]["dir"] = frugal.save_arrays(
                folder, train=(arrays(32, seed) for seed in range(2)), test=arrays(16, 9)
            )
            seen = []
            frugal.train(config, callbacks=[lambda report: seen.append(report["step"])], quiet=True)
            self.assertEqual(seen, [4, 8])
            with self.assertRaisesRegex(ValueError, "expected batches"):
                frugal.save_arrays(folder, train=iter(()))

    def test_lists_of_batches_and_of_samples_are_told_apart(self):
        x, y = arrays(8)
        pictures = np.zeros((8, 2, 2, 1), np.uint8)
        with tempfile.TemporaryDirectory() as folder:
            for batches in ([(x, y), (x[:3], y[:3])], [(x, y), (x[:3], y[:3]), (x, y)], [(x, x), (x, x)]):
                frugal.save_arrays(folder, train=batches)
                with np.load(os.path.join(folder, "train.npz")) as written:
                    np.testing.assert_array_equal(written["input"], np.concatenate([one[0] for one in batches]))
                    np.testing.assert_array_equal(written["target"], np.concatenate([one[1] for one in batches]))
            frugal.save_arrays(folder, train=([[1.0, 2.0], [3.0, 4.0]], [0, 1]))
            with np.load(os.path.join(folder, "train.npz")) as written:
                self.assertEqual(written["input"].shape, (2, 2))
            os.remove(os.path.join(folder, "train.npz"))
            for kind, message, given in (
                (ValueError, "two pairs of arrays, which may be either", {"train": ([x[0], x[1]], [x[2], x[3]])}),
                (ValueError, "expected train, val or test, got valid", {"train": (x, y), "valid": (x, y)}),
                (ValueError, "as many targets as inputs in val", {"train": (x, y), "val": (x, y[:2])}),
                (TypeError, "inputs of train that are all bytes .* got batches of uint8 and of float32",
                 {"train": [(pictures, y), (pictures.astype("f4"), y)]}),
                (ValueError, r"\[save_arrays\] .* 1 of 8 elements masked", {"train": (x, np.ma.masked_equal(np.arange(8), 3))}),
            ):
                with self.assertRaisesRegex(kind, message):
                    frugal.save_arrays(folder, **given)
                self.assertEqual(os.listdir(folder), [])

    def test_arrays_go_together(self):
        x, y = arrays(8)
        with tempfile.TemporaryDirectory() as folder:
            for wrong, message in (
                ((x, y[:5]), r"as many targets as inputs in train, got inputs of shape \[8, 8\] and targets of shape \[5\]"),
                (iter([(x, y), (x[:3], y)]), "as many targets as inputs in train"),
                ((x, 3), r"targets of shape \[\]"),
                ((x,), r"expected train to be \(inputs, targets\), got 1 arrays"),
                (x, r"expected train to be \(inputs, targets\), got ndarray"),
            ):
                with self.assertRaisesRegex(ValueError, message):
                    frugal.save_arrays(folder, train=wrong)
            with self.assertRaisesRegex(TypeError, "expected train to be .* got int 3"):
                frugal.save_arrays(folder, train=3)
            with self.assertRaisesRegex(TypeError, "expected arrays of numbers in train, got dtype object"):
                frugal.save_arrays(folder, train=(np.array([None] * 8), y))
            self.assertEqual(os.listdir(folder), [])

    def test_arrays_of_dtypes_that_files_do_not_have(self):
        x, y = arrays(32)
        written = {"f2": "f4", "i1": "i4", "i2": "i4", "u2": "i4", "u4": "i8", ">u2": "i4"}
        with tempfile.TemporaryDirectory() as folder:
            for dtype, kept in written.items():
                inputs = (8 * x).round().astype("i1" if "u" not in dtype else "u1").astype(dtype)
                config = json.loads(json.dumps(CONFIG))
                targets = y.astype(dtype) if dtype != "f2" else y
                config["data"]["dir"] = frugal.save_arrays(
                    folder, train=(inputs, targets), test=(inputs, targets)
                )
                with np.load(os.path.join(folder, "train.npz")) as found:
                    self.assertEqual(found["input"].dtype, np.dtype(kept))
                    self.assertTrue((found["input"] == inputs).all())
                frugal.train(config, set={"train.steps": 1}, quiet=True)
            for dtype in ("u8", "c8", "g"):
                with self.assertRaisesRegex(TypeError, "arrays of numbers in train, got dtype .* can be written"):
                    frugal.save_arrays(folder, train=(np.zeros((8, 8), dtype), y[:8]))

    def test_arrays_of_another_byte_order(self):
        x, y = arrays(8)
        with tempfile.TemporaryDirectory() as folder:
            swapped = x.astype(x.dtype.newbyteorder()), y.astype(y.dtype.newbyteorder())
            frugal.save_arrays(folder, train=swapped)
            with np.load(os.path.join(folder, "train.npz")) as written:
                for name, array in (("input", x), ("target", y)):
                    self.assertTrue(written[name].dtype.isnative)
                    self.assertTrue((written[name] == array).all())


class Runs(InFolder):
    def test_trains_as_the_program_does(self):
        run = frugal.train(self.config, out=self.path("a"), quiet=True)
        with open(self.path("config.json"), "w") as file:
            json.dump(self.config, file)
        program = os.environ["FRUGAL_PROGRAM"]
        subprocess.run(
            [program, "train", self.path("config.json"), "--out", self.path("b"), "--quiet"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        other = frugal.Run(self.path("b"))
        self.assertTrue(run.finished)
        self.assertEqual(run.lines("step"), other.lines("step"))
        self.assertEqual(run.summary["final"]["test_loss"], other.summary["final"]["test_loss"])

    def test_the_home_folder(self):
        with open(self.path("c.json"), "w") as file:
            json.dump({**self.config, "data": {**self.config["data"], "dir": "~/data"}}, file)
        with unittest.mock.patch.dict(os.environ, {"HOME": self.folder.name}):
            run = frugal.train("~/c.json", out="~/a", quiet=True)
            self.assertEqual(str(run.folder), self.path("a"))
            self.assertEqual(run.config["data"]["dir"], self.path("data"))
            self.assertEqual(len(frugal.load("~/a").predict(arrays(5)[0])), 5)
            weights = "~/a/checkpoint/last.safetensors"
            self.assertEqual(len(frugal.load("~/a", weights=weights).predict(arrays(5)[0])), 5)
            last = pathlib.Path(self.path("a"), "checkpoint", "last.safetensors")
            self.assertEqual(run.evaluate(weights=last)["loss"], run.evaluate()["loss"])
            self.assertEqual(len(run.load(weights=last).predict(arrays(5)[0])), 5)
        self.assertFalse(os.path.exists("~"))

    def test_what_a_run_holds(self):
        run = frugal.train(self.config, out=self.path("a"), set={"train.epochs": 3}, quiet=True)
        table = run.metrics()
        self.assertEqual(list(table["epoch"]), [1, 2, 3])
        self.assertEqual(table["step"].dtype, np.int64)
        self.assertEqual(len(run.metrics("step")), 12)
        for wrong in ("steps", "convergence"):
            with self.assertRaisesRegex(frugal.ConfigError, f"one of epoch, .*, step, .*; got str '{wrong}'"):
                run.metrics(wrong)
        drawing = {name: unittest.mock.MagicMock() for name in ("matplotlib", "matplotlib.pyplot")}
        with unittest.mock.patch.dict(sys.modules, drawing):
            with self.assertRaisesRegex(frugal.ConfigError, "one of .*test_loss.*; got str 'acuracy'"):
                run.plot("acuracy")
            run.plot("test_loss", "test_accuracy")
        self.assertEqual(run.config["train"]["epochs"], 3)
        found = run.evaluate()
        self.assertAlmostEqual(found["loss"], table["test_loss"][-1], places=6)
        model = run.load()
        x, _ = arrays(5, 2)
        guesses = model.predict(x)
        self.assertEqual(len(guesses), 5)
        chances = model.probabilities(x)
        self.assertEqual(chances.shape, (5, 2))
        np.testing.assert_allclose(chances.sum(1), 1, atol=1e-6)
        for row, sample in zip(guesses, chances):
            self.assertEqual(row[0][0], sample.argmax())
        weights = model.weights()
        first = next(iter(weights.values()))
        np.asarray(first)[:] = 0  # it is the network's own memory
        self.assertFalse(np.allclose(model.probabilities(x), chances))
        self.assertTrue(os.path.exists(run.report()))
        self.assertTrue(os.path.exists(frugal.report(self.path("a"), out=self.path("r.html"))))

    def test_evaluates_lines_of_a_file(self):
        with open(self.path("talk.jsonl"), "w") as file:
            file.write('{"text": "the cat says meow"}\n' * 40)
        run = frugal.train(
            {
                "model": {"name": "decoder", "layers": 1, "width": 16, "heads": 2},
                "data": {"name": "jsonl", "dir": self.path("talk.jsonl"), "max_length": 16},
                "train": {"steps": 2},
            },
            out=self.path("talk"),
            quiet=True,
        )
        with open(self.path("questions.jsonl"), "w") as file:
            file.write('{"prompt": "the ", "choices": ["cat", "meow"], "answer": "A"}\n')
        found = run.evaluate(data=self.path("questions.jsonl"))
        self.assertEqual((found["questions"], found["choices"]), (1, 2))
        self.assertIn(found["accuracy"], (0, 1))

    def test_plans(self):
        plan = frugal.plan(self.config, memory="1 GiB")
        self.assertEqual(plan["recommended"]["memory_bytes"], 1 << 30)
        for number in (1 << 30, float(1 << 30)):
            self.assertEqual(frugal.plan(self.config, memory=number)["recommended"], plan["recommended"])
        self.assertTrue(plan["levels"])
        self.assertIn("recommended", plan)
        largest = frugal.plan(self.config, memory="1 GiB", largest="batch")
        self.assertEqual(largest["key"], "data.batch_size")

    def test_callbacks(self):
        class Both:
            steps, epochs = [], []

            def on_step(self, report):
                self.steps.append(report["step"])

            def on_epoch(self, report):
                self.epochs.append(report["test"]["loss"])

        both, plain = Both(), []
        frugal.train(self.config, callbacks=[both, plain.append], quiet=True)
        self.assertEqual(both.steps, list(range(1, 9)))
        self.assertEqual(len(both.epochs), 2)
        self.assertEqual([report["epoch"] for report in plain], [1, 2])

    def test_callbacks_of_a_generator(self):
        reports = []
        frugal.train(self.config, callbacks=(one for one in [reports.append]), quiet=True)
        self.assertEqual([report["epoch"] for report in reports], [1, 2])

    def test_a_callback_may_change_the_working_directory(self):
        before = os.getcwd()
        try:
            os.chdir(self.path(""))
            run = frugal.train(self.config, out="own", callbacks=[lambda report: os.chdir("/")], quiet=True)
            self.assertTrue(run.finished)
            self.assertEqual(run.folder, pathlib.Path(self.path("own")).resolve())
        finally:
            os.chdir(before)

    def test_a_callback_ends_the_run_and_another_call_goes_on(self):
        class Stop:
            def on_step(self, report):
                return report["step"] < 3

        whole = frugal.train(self.config, out=self.path("whole"), quiet=True)
        run = frugal.train(self.config, out=self.path("a"), callbacks=[Stop()], quiet=True)
        self.assertFalse(run.finished)
        run = frugal.train(self.config, out=self.path("a"), resume=True, quiet=True)
        self.assertTrue(run.finished)
        self.assertEqual(run.summary["final"]["test_loss"], whole.summary["final"]["test_loss"])

    def test_resume_begins_a_run_where_none_is(self):
        """As on the command line, so that a job can be sent again."""
        with open(self.path("config.json"), "w") as file:
            json.dump(self.config, file)
        said = subprocess.run(
            [os.environ["FRUGAL_PROGRAM"], "train", self.path("config.json"), "--out", self.path("a"), "--resume"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        self.assertIn(f"no checkpoint in {self.path('a')}, so a new run begins", said.stdout + said.stderr)
        run = frugal.train(self.config, out=self.path("b"), resume=True, quiet=True)
        self.assertEqual(run.lines("step"), frugal.Run(self.path("a")).lines("step"))

    def test_files_of_a_run_that_are_cut(self):
        run = frugal.train(self.config, out=self.path("a"), quiet=True)
        whole = run.lines("step")
        self.assertEqual(len(whole), 8)
        with open(self.path("a/metrics.jsonl"), "a") as file:
            file.write('{"type": "step", "st')  # a line that is being written
        self.assertEqual(run.lines("step"), whole)
        with open(self.path("a/metrics.jsonl"), "a") as file:
            file.write("\n")
        with self.assertRaisesRegex(frugal.Error, "expected JSON in line .*metrics.jsonl"):
            run.lines("step")
        for name, content, message in (
            ("summary.json", b'{"a": ', "expected JSON in .*summary.json, which may be cut"),
            ("config.json", b"", "expected JSON in .*config.json"),
            ("config.json", b"\xff\xfe", "expected text in .*config.json"),
        ):
            with open(self.path("a/" + name), "wb") as file:
                file.write(content)
            with self.assertRaisesRegex(frugal.Error, message):
                run = frugal.Run(self.path("a"))
                run.summary if name == "summary.json" else run.config
        os.remove(self.path("a/summary.json"))
        with self.assertRaisesRegex(FileNotFoundError, "expected summary.json in .*the run has not ended"):
            frugal.Run(self.path("a")).summary
        with self.assertRaisesRegex(FileNotFoundError, "which is no folder"):
            frugal.Run(self.path("nothing")).metrics()
        with self.assertRaisesRegex(frugal.ConfigError, "nothing"):
            frugal.evaluate(self.path("nothing"))

    def test_names_that_no_option_has(self):
        run = frugal.train(self.config, out=self.path("a"), quiet=True)
        for call, message in (
            (lambda: run.evaluate(split="foo"), r"\[evaluate\] expected split to be one of test, val; got str 'foo'"),
            (lambda: run.evaluate(tta="foo"), r"\[evaluate\] expected tta to be one of none, flip, ten_crop"),
            (lambda: frugal.plan(self.config, largest="batch"), r"\[plan\] expected memory, .* got none"),
            (lambda: frugal.train(self.config, extend=-1, resume=True), r"\[train\] expected extend of at least 0 more"),
            (lambda: frugal.plan(self.config, memory="1 GiB", largest="foo"), r"\[plan\] expected largest to be one of batch"),
        ):
            with self.assertRaisesRegex(frugal.ConfigError, message):
                call()
        with self.assertRaisesRegex(ValueError, "without a folder has no weights"):
            frugal.train(self.config, quiet=True).load()
        with self.assertRaisesRegex(TypeError, r"\[predict\] expected each input to be the name"):
            run.load().predict(["a", 3])

    def test_false_of_numpy_ends_the_run(self):
        run = frugal.train(
            self.config, out=self.path("a"), callbacks=[lambda report: np.float64(1) < 0], quiet=True
        )
        self.assertFalse(run.finished)

    def test_numbers_of_numpy_in_a_configuration(self):
        self.config["optim"]["lr"] = np.float32(0.25)
        run = frugal.train(
            self.config, out=self.path("a"), set={"train.epochs": np.int64(1)}, quiet=True
        )
        self.assertEqual(run.config["train"]["epochs"], 1)
        self.assertEqual(run.config["optim"]["lr"], 0.25)

    def test_arguments_of_the_wrong_kind(self):
        for wrong, message in (
            ({"config": 3}, "a file or a dict, got int"),
            ({"config": {"optim": {"lr": {1}}}}, "got set"),
            ({"config": self.config, "set": "train.epochs=1"}, "set to be a dict.*got str"),
            ({"config": self.config, "callbacks": print}, "a list of callbacks"),
            ({"config": self.config, "callbacks": [3]}, "callbacks that are functions.*got int"),
        ):
            with self.assertRaisesRegex(TypeError, message):
                frugal.train(**wrong)

    def test_a_report_needs_a_run(self):
        with self.assertRaisesRegex(frugal.ConfigError, "expected the folder of a run or more"):
            frugal.report()

    def test_an_exception_of_a_callback_arrives(self):
        def fails(report):
            raise ZeroDivisionError("mine")

        with self.assertRaisesRegex(ZeroDivisionError, "mine"):
            frugal.train(self.config, callbacks=[fails], quiet=True)

    def test_a_second_run_at_once_is_refused(self):
        """The memory of both would be counted as that of each."""
        refused = []

        def other(report):
            with self.assertRaisesRegex(frugal.Error, "another one trains in this process"):
                frugal.train(self.config, quiet=True)
            thread = threading.Thread(target=in_thread)
            thread.start()
            thread.join()
            self.assertAlmostEqual(frugal.evaluate(self.path("b"))["loss"], report["test"]["loss"])

        def in_thread():
            try:
                frugal.train(self.config, quiet=True)
            except frugal.Error as error:
                refused.append(error)

        self.config["train"]["epochs"] = 1
        frugal.train(self.config, out=self.path("b"), quiet=True)
        frugal.train(self.config, callbacks=[other], quiet=True)
        self.assertEqual(len(refused), 1)
        frugal.train(self.config, quiet=True)  # nothing of them is left

    def test_other_threads_run_meanwhile(self):
        counted, done = [], threading.Event()

        def count():
            while not done.is_set():
                counted.append(1)
                time.sleep(0.001)

        other = threading.Thread(target=count)
        before = []
        other.start()
        self.config["train"]["epochs"] = 40
        frugal.train(self.config, callbacks=[lambda report: before.append(len(counted)) or True], quiet=True)
        done.set()
        other.join()
        self.assertGreater(before[-1], before[0])


class Processes(InFolder):
    def loss(self, out):
        config = {
            **self.config,
            "model": {"name": "mlp", "hidden": [512]},
            "threads": 2,
        }
        return frugal.train(config, out=self.path(out), quiet=True).summary["final"]["test_loss"]

    def test_a_child_trains_as_its_parent_does(self):
        """The threads of the parent are not in its child."""
        wanted = self.loss("a")
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns where the process has threads
            child = os.fork()
        if child == 0:
            try:
                os.write(write, repr(self.loss("b")).encode())
            finally:
                os._exit(0)
        os.close(write)
        with open(read, "rb") as said:
            ready, _, _ = select.select([said], [], [], 60)
            if not ready:
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            self.assertTrue(ready, "the child of fork() waits for ever")
            self.assertEqual(float(said.read()), wanted)
        self.assertEqual(self.loss("c"), wanted)


class Names(unittest.TestCase):
    def test_all_public_names_say_what_they_are(self):
        modules = [frugal]
        with contextlib.suppress(ImportError):  # without PyTorch
            modules.append(importlib.import_module("frugal.torch"))
        named = [(f"{module.__name__}.{name}", getattr(module, name)) for module in modules for name in module.__all__]
        named += [(f"{type(made).__module__}.{type(made).__name__}", type(made)) for made in (
            frugal.policy(), frugal.optimizer("sgd", frugal.network("mlp", in_features=4, num_classes=2)))]
        for name, one in [*named]:
            if isinstance(one, type):
                named += [(f"{name}.{part}", value) for part, value in vars(one).items() if not part.startswith("_")]
        self.assertGreater(len(named), 80)
        for name, one in named:
            if not callable(one) and not isinstance(one, (property, classmethod, staticmethod)):
                continue  # a constant, such as has_cuda
            said = one.__doc__ or ""
            if "->" in said.partition("\n")[0]:  # the signature that pybind11 writes
                said = said.partition("\n")[2]
            self.assertIn(" ", said.strip(), f"{name} has no docstring: {one.__doc__!r}")


class Examples(unittest.TestCase):
    def test_resnet_on_arrays(self):
        folder = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "python")
        said = subprocess.run(
            [sys.executable, "-B", os.path.join(folder, "resnet_on_arrays.py"), "1"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        self.assertRegex(said, r"epoch 1: loss \d\.\d+, \d+ bytes kept")
        self.assertRegex(said, r"test accuracy: [01]\.")

    def test_notebook(self):
        """The code of the notebook runs from its first cell to its last one."""
        file = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "python", "first_steps.ipynb")
        with open(file, encoding="utf-8") as text:
            cells = [cell for cell in json.load(text)["cells"] if cell["cell_type"] == "code"]
        self.assertGreater(len(cells), 4)
        names, before = {}, os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                for number, cell in enumerate(cells):
                    self.assertEqual(cell["outputs"], [])  # they would grow old in git
                    exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
            finally:
                os.chdir(before)

    def test_own_op(self):
        folder = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "python")
        said = subprocess.run(
            [sys.executable, "-B", os.path.join(folder, "own_op.py"), "100"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        self.assertLess(float(said.split()[1]), 0.2)


class Errors(InFolder):
    def test_a_network_names_what_it_does_not_read(self):
        ids = np.zeros((2, 8), np.int64)
        network = frugal.network("bert_tiny", num_classes=2, vocab_size=16)
        with self.assertRaisesRegex(TypeError, "reads.*attention_mask, token_type_ids.*got attention_maks"):
            network(ids, attention_maks=ids)
        network(ids, attention_mask=ids + 1)
        mlp = frugal.network("mlp", in_features=8, num_classes=2)
        with self.assertRaisesRegex(TypeError, "reads.*none.*got foo"):
            mlp(np.zeros((2, 8), np.float32), foo=ids)

    def test_classes(self):
        with self.assertRaises(frugal.ConfigError) as caught:
            frugal.train(self.config, set={"optim.lr": -1}, quiet=True)
        self.assertEqual(caught.exception.path, "optim.lr")
        self.assertIn("optim.lr", str(caught.exception))
        self.assertIsInstance(caught.exception, ValueError)
        with self.assertRaisesRegex(frugal.ConfigError, "epocs"):
            frugal.plan(self.config, set={"train.epocs": 1})
        with self.assertRaises(frugal.Error):
            frugal.load(self.path("nothing"))
        with self.assertRaises(frugal.OutOfMemory):
            frugal.train(self.config, set={"memory_limit": 1024}, quiet=True)
        x, y = arrays()
        self.config["data"]["dir"] = frugal.save_arrays(self.path("numbers"), train=(x, y + 0.5))
        with self.assertRaises(frugal.NotFinite):
            frugal.train(self.config, set={"optim.lr": 1e4, "train.epochs": 8}, quiet=True)

    def test_wrong_samples(self):
        run = frugal.train(self.config, out=self.path("a"), quiet=True)
        with self.assertRaisesRegex(frugal.Error, "expected samples"):
            run.load().predict(np.zeros((2, 9), np.float32))


class Signals(InFolder):
    def test_interrupt_leaves_a_checkpoint(self):
        self.config["train"]["epochs"] = 100000
        before = signal.getsignal(signal.SIGINT)

        class Interrupt:
            def on_step(self, report):
                if report["step"] == 5:
                    os.kill(os.getpid(), signal.SIGINT)

        with self.assertRaisesRegex(frugal.Interrupted, "checkpoint") as caught:
            frugal.train(self.config, out=self.path("a"), callbacks=[Interrupt()], quiet=True)
        self.assertIsInstance(caught.exception, KeyboardInterrupt)
        self.assertEqual(caught.exception.signal, signal.SIGINT)
        self.assertTrue(os.path.exists(self.path("a/checkpoint")))
        self.assertEqual(signal.getsignal(signal.SIGINT), before)
        with self.assertRaises(KeyboardInterrupt):  # Python's own handler is back
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)

    def test_handlers_come_back_when_the_last_command_ends(self):
        """A command of another thread begins in a run, and ends after it."""
        frugal.train(self.config, out=self.path("a"), quiet=True)
        before = signal.getsignal(signal.SIGINT)
        begun, thread = threading.Event(), []

        def evaluates():
            for _ in range(200):
                begun.set()
                frugal.evaluate(self.path("a"))

        class Begins:
            def on_step(self, report):
                if not thread:
                    thread.append(threading.Thread(target=evaluates))
                    thread[0].start()
                    begun.wait()

        for _ in range(3):
            thread.clear()
            frugal.train(self.config, callbacks=[Begins()], quiet=True)
            thread[0].join()
            self.assertEqual(signal.getsignal(signal.SIGINT), before)
            with self.assertRaises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(5)

    @unittest.skipUnless(sys.platform == "linux", "asks Linux which pages are in memory")
    def test_predicting_ends_at_a_signal(self):
        """What lies behind the batch at which the signal comes is not read."""
        model = frugal.train(self.config, out=self.path("a"), quiet=True).load()
        file = self.path("samples")
        with open(file, "wb") as samples:
            samples.truncate(128 << 20)  # 65,536 batches, none of them in memory
        samples = np.memmap(file, np.float32, "r+").reshape(-1, 8)
        libc = ctypes.CDLL(None, use_errno=True)

        def last_is_read():
            page = mmap.PAGESIZE
            here = ctypes.create_string_buffer(1)
            last = samples[-1:].ctypes.data // page * page
            self.assertEqual(libc.mincore(ctypes.c_void_p(last), ctypes.c_size_t(page), here), 0)
            return here.raw[0] & 1 == 1

        def alarm(number, frame):
            raise ZeroDivisionError

        before = signal.signal(signal.SIGVTALRM, alarm)
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.001)
            with self.assertRaises(ZeroDivisionError):
                model.predict(samples)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)
        self.assertFalse(last_is_read())
        self.assertEqual(samples[-1].sum(), 0)
        self.assertTrue(last_is_read())


if __name__ == "__main__":
    warnings.simplefilter("error")
    unittest.main()
