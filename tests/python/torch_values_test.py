"""frugal.torch: gradients of values that are odd: not finite, exponents and targets that are trained."""

import sys
import unittest

try:
    import torch
    from torch.nn import functional
except ImportError:
    print("skipped: this Python has no torch (Debian: python3-torch)")
    sys.exit(77)

import frugal.torch as ft

SIZE = 64


def gradients(f, inputs, repeats=1, **options):
    """The gradients of f() for the inputs, as a mean over steps, and what the last step has kept."""
    sums, memory = [torch.zeros_like(one) for one in inputs], None
    context = ft.compress(min_elements=1, **options) if options else None
    for _ in range(repeats):
        for one in inputs:
            one.grad = None
        if context is None:
            f().backward()
        else:
            with context as memory:
                f().backward()
        for total, one in zip(sums, inputs):
            total += one.grad / repeats
    return sums, memory


class Values(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.x = torch.randn(SIZE, SIZE, requires_grad=True)
        self.t = torch.randn(SIZE, SIZE, requires_grad=True)

    def test_a_row_without_a_key_harms_no_other_row(self):
        """The probabilities of such a row are NaN, which a mask behind them hides."""
        hidden = torch.rand(SIZE, SIZE) < 0.2
        hidden[3] = True
        values = torch.arange(float(SIZE))

        def masked():
            y = (self.x * 1.0).masked_fill(hidden, float("-inf")).softmax(-1)
            return (torch.where(hidden, torch.zeros(()), y) * values).sum()

        (plain,), _ = gradients(masked, [self.x])
        self.assertTrue(torch.isfinite(plain).all())
        for bits in (4, 8, 16):
            (found,), memory = gradients(masked, [self.x], bits=bits)
            self.assertTrue(torch.equal(found, plain), bits)
            self.assertIn("not finite", memory.whole)

    def test_values_that_are_not_finite_stay_with_those_who_read_them(self):
        for odd in (float("nan"), float("inf"), float("-inf")):
            place = torch.zeros(SIZE, SIZE, dtype=torch.bool)
            place[5, 7] = True

            def products(rectified):
                y = (self.x * 1.0).masked_fill(place, odd)
                y = (y.relu() if rectified else y) * (self.t * 1.0)
                return torch.where(place, torch.zeros(()), y).sum()

            for rectified in (False, True):
                plain, _ = gradients(lambda: products(rectified), [self.x, self.t])
                found, _ = gradients(lambda: products(rectified), [self.x, self.t], bits=8)
                for one, other in zip(plain, found):
                    self.assertTrue(torch.equal(torch.isfinite(one), torch.isfinite(other)), (odd, rectified))
                    finite = torch.isfinite(one)
                    self.assertLess(float((one - other)[finite].abs().max()), 0.05)

    def test_a_power_with_an_exponent_for_each_element(self):
        base, power = self.x.detach().abs() + 0.5, torch.full((SIZE, SIZE), 2.0)
        for name, f in {
            "tensors": lambda: ((self.x * 1.0).abs() + 0.5) ** (self.t * 1.0),
            "a number to a tensor": lambda: 2.0 ** (self.t * 1.0) + self.x * 0,
            "squares": lambda: (self.x * 1.0) ** power + self.t * 0,
            "one element": lambda: (self.x * 1.0) ** torch.tensor(2.0) + self.t * 0,
            "a trained exponent": lambda: base ** (self.t * 1.0) + self.x * 0,
        }.items():
            plain, _ = gradients(lambda: f().sum(), [self.x, self.t])
            found, _ = gradients(lambda: f().sum(), [self.x, self.t], bits=8)
            for one, other in zip(plain, found):
                self.assertTrue(torch.equal(one, other), name)

    def test_units_that_are_dead_get_no_gradient(self):
        where = torch.arange(SIZE) % 2 == 0
        for bits in (2, 4, 8):
            # The derivative of hardswish is exactly 0 below -3, and exactly 1 above 3.
            found, _ = gradients(lambda: functional.hardswish(self.x - 20).sum(), [self.x], bits=bits)
            self.assertTrue(torch.equal(found[0], torch.zeros(SIZE, SIZE)), bits)
            if bits > 2:
                for f, most in ((functional.hardswish, 0), (functional.gelu, 0), (functional.selu, 1e-6)):
                    sign = torch.where(where, 30.0, -30.0)
                    plain, _ = gradients(lambda: f(self.x + sign).sum(), [self.x])
                    found, _ = gradients(lambda: f(self.x + sign).sum(), [self.x], bits=bits)
                    self.assertLessEqual(float((plain[0] - found[0]).abs().max()), most, (f, bits))

            def hidden():  # the root's gradient is infinite where units are dead
                return functional.hardswish(self.x * 5).abs().sqrt().sum()

            plain, _ = gradients(hidden, [self.x])
            found, _ = gradients(hidden, [self.x], bits=bits)
            self.assertTrue(torch.equal(torch.isfinite(plain[0]), torch.isfinite(found[0])), bits)

    def test_slopes_that_are_unusual(self):
        """The levels have the derivatives of all values, however wide the op is."""
        for f in (
            lambda x: functional.celu(x, 50.0),
            lambda x: functional.softplus(x, 0.01),
            lambda x: functional.celu(x / 1000, 0.02),
            lambda x: functional.softplus(x / 1000, 50.0),
        ):
            side = torch.sign(self.x.detach())

            def loss():
                return (f(self.x * 60) * side).sum()

            plain, _ = gradients(loss, [self.x])
            found, _ = gradients(loss, [self.x], 20, bits=4)
            for part in (side > 0, side < 0):
                off = (found[0] - plain[0])[part]
                self.assertLess(float(off.mean().abs()), 0.02 * float(plain[0].abs().max()))
                error = float(off.std()) / part.sum().item() ** 0.5
                self.assertLess(float(off.mean().abs()), 5 * error + 1e-6)

    def test_ends_in_the_dtype_of_the_values(self):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            ends = torch.cat([torch.tensor([0.3], dtype=one).to(dtype) for one in (torch.float32, dtype)])
            near = torch.linspace(-1, 1, 2000).to(dtype)
            at = torch.cat([ends, -ends, near, torch.tensor([-3.0, 0.0, -0.0, 3.0, 6.0], dtype=dtype)])
            for name, f in {
                "softshrink": lambda x: functional.softshrink(x, 0.3),
                "hardshrink": lambda x: functional.hardshrink(x, 0.3),
                "threshold": lambda x: functional.threshold(x, 0.3, 0.1),
                "threshold in place": lambda x: functional.threshold(x.clone(), 0.3, 0.1, True),
                "leaky relu": lambda x: functional.leaky_relu(x, 0.3),
                "hardtanh": lambda x: functional.hardtanh(x, -0.3, 0.3),
                "clamp": lambda x: x.clamp(-0.3, 0.3),
                "hardsigmoid": functional.hardsigmoid,
            }.items():
                if dtype == torch.bfloat16 and name == "hardtanh":
                    continue  # PyTorch 1.13 has none
                x = at.clone().requires_grad_()
                plain, _ = gradients(lambda: f(x * 1).sum(), [x])
                found, memory = gradients(lambda: f(x * 1).sum(), [x], bits=4)
                self.assertTrue(torch.equal(plain[0], found[0]), (name, dtype))
                self.assertLessEqual(memory.kept, len(at) // 8 + 2, (name, dtype))

    def test_the_largest_numbers_of_f16_stay_finite(self):
        """A mask of finfo.min is added to scores, as attention does."""
        scores = torch.randn(1024, SIZE).half()
        weight = torch.ones(SIZE, dtype=torch.float16, requires_grad=True)
        bias = torch.zeros(SIZE, dtype=torch.float16, requires_grad=True)
        ends = torch.finfo(torch.float16)
        for end in (ends.min, ends.max, 64000.0):
            mask = torch.zeros_like(scores)
            mask[::9] = end

            def run():
                ((scores + bias + mask) * weight).backward(torch.full_like(scores, 1e-6))

            def gradient(**options):
                weight.grad = None
                if not options:
                    run()
                    return weight.grad, None
                with ft.compress(min_elements=1, **options) as memory:
                    run()
                return weight.grad, memory

            plain, _ = gradient()
            for bits in (2, 4, 8):
                found, memory = gradient(bits=bits)
                self.assertLess(memory.packed, memory.saved, (end, bits))
                self.assertTrue(torch.isfinite(found).all(), (end, bits))
                # Errors of 1024 values add up, each with the variance of a step of the group.
                step = 2 * 65504 * 1e-6 / (2**bits - 1)
                off = (found - plain).float().abs().max()
                self.assertLess(float(off), 5 * 32 * step / 12**0.5 + 0.1, (end, bits))

    def test_a_target_that_is_trained(self):
        def loss():
            return functional.binary_cross_entropy_with_logits(
                self.x * 3, torch.sigmoid(self.t), reduction="sum"
            )

        plain, _ = gradients(loss, [self.x, self.t])
        found, _ = gradients(loss, [self.x, self.t], 100, bits=8)
        for one, other in zip(plain, found):
            self.assertLess(float((one - other).abs().max()), 0.02)
        self.t.requires_grad_(False)  # then the logits' probabilities suffice
        with ft.compress(bits=4, min_elements=1) as memory:
            loss().backward()
        self.assertLess(memory.packed, memory.saved)


if __name__ == "__main__":
    unittest.main()
