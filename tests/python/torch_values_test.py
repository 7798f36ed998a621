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
