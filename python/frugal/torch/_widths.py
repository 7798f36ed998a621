"""How many bits each packed tensor has."""

import math
import numbers
import re
from typing import Any, Dict, NamedTuple, Optional, Union

from frugal import _frugal
from frugal.torch._memory import readable

# As in configurations: a letter alone counts as KiB, MiB and so on.
_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", 1):
    _UNITS.update({_letter: 1024**_power, f"{_letter}IB": 1024**_power, f"{_letter}B": 1000**_power})


_MOST = 1e280  # of a variance, so that its products are finite


def is_number(value: Any, whole: bool = False) -> bool:
    """Is it a number of Python or of NumPy?"""
    kind = numbers.Integral if whole else numbers.Real
    return isinstance(value, kind) and not isinstance(value, bool)


def bytes_of(budget: Union[int, str]) -> int:
    """The bytes of a number or of a text such as "2 GiB"."""
    if isinstance(budget, str):
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([A-Za-z]*)\s*", budget)
        if found is None or found.group(2).upper() not in _UNITS:
            raise ValueError(f'[compress] expected a budget such as "2 GiB" or a number of bytes, got "{budget}"')
        budget = int(float(found.group(1)) * _UNITS[found.group(2).upper()])
    if not is_number(budget) or not 1 <= budget < 2**63:
        raise ValueError(
            f'[compress] expected a budget above 0, such as "2 GiB" or a number of bytes, got {budget}'
        )
    return int(budget)


class Item(NamedTuple):
    """A tensor that was packed by its values."""

    elements: int
    bits: int
    least: int  # bits that it needs
    rest: int  # bytes beside the codes: the ranges of groups


class Widths:
    """The widths of a context: of all tensors alike, by sensitivity, or within a budget.

    Tensors are known by who packs them: the module's path, the op, and a number.
    """

    def __init__(
        self,
        bits: Optional[float],
        policy: Optional[str],
        budget: Union[int, str, None],
        preset: Optional[str],
    ) -> None:
        if preset is not None:
            if bits is not None or policy is not None:
                raise ValueError("[compress] expected either a preset, or bits and a policy")
            bits, adaptive = _frugal.preset(str(preset))
            policy = "gact" if adaptive else "fixed"
        self.bits: float = 4 if bits is None else bits
        self.policy = "fixed" if policy is None else policy
        self.budget = None if budget is None else bytes_of(budget)
        if self.policy not in ("fixed", "gact"):
            raise ValueError(f'[compress] expected the policy "fixed" or "gact", got "{policy}"')
        if not is_number(self.bits) or not 0 <= self.bits <= 16:
            raise ValueError(f"[compress] expected bits from 0 to 16, got {bits!r}")
        if self.policy == "fixed" and self.bits != int(self.bits):
            raise ValueError(f'[compress] expected whole bits, or policy="gact", got {bits}')
        if self.policy == "gact" and not (self.bits == 0 or 1 <= self.bits <= 8):
            raise ValueError(f'[compress] expected bits from 1 to 8 for policy="gact", got {bits}')
        self.base = math.ceil(self.bits)  # before anything is known
        if self.budget is not None:
            if bits == 0:
                raise ValueError("[compress] expected a budget, or bits=0, which packs nothing")
            self.base = 2
        self.items: Dict[str, Item] = {}  # of the present step, and when it has ended of the last one
        self.other = ""  # the tensor that draws other numbers, while adapt() measures
        self._planned: Dict[str, int] = {}
        self._costs: Dict[str, float] = {}  # variance of the gradient for a step of 1 of the range
        self._whole = 0  # bytes of the last step that widths do not change
        self._numbers: Dict[Any, int] = {}

    @property
    def adapts(self) -> bool:
        return self.policy == "gact" or self.budget is not None

    def begin_step(self) -> None:
        if self.budget is not None and self.items and not self.other:
            self._plan(self.items, self._costs)
        self.items = {}
        self._numbers = {}

    def end_step(self, kept: int) -> None:
        self._whole = kept - sum(one.elements * one.bits // 8 for one in self.items.values())

    def name(self, path: str, op: str) -> str:
        number = self._numbers.get((path, op), 0)
        self._numbers[(path, op)] = number + 1
        return f"{path}/{op}" if number == 0 else f"{path}/{op}/{number}"

    def of(self, name: str, least: int) -> int:
        return max(least, self._planned.get(name, self.base))

    def draws(self, name: str) -> int:
        return 1 if name == self.other else 0

    def note(self, name: str, elements: int, bits: int, least: int, size: int) -> None:
        self.items[name] = Item(elements, bits, least, size - elements * bits // 8)

    def learn(self, items: Dict[str, Item], variances: Dict[str, float]) -> None:
        """Sets the widths by the variances that these items had, or nothing where this is an error."""
        for name, variance in variances.items():
            if not variance < _MOST:
                raise ValueError(
                    f"[compress] expected gradients that stay finite when {name} is rounded otherwise, got a "
                    f"variance of {variance}; the widths stay as they were"
                )
        costs = {name: variance * (2 ** items[name].bits - 1) ** 2 for name, variance in variances.items()}
        self._plan(items, costs)
        self._costs = costs

    def _plan(self, items: Dict[str, Item], costs_of: Dict[str, float]) -> None:
        if not items:
            return
        elements = [one.elements for one in items.values()]
        least = [one.least for one in items.values()]
        if self.budget is not None:
            room = 8 * (self.budget - self._whole)
        else:  # what needs more bits than the average does not take them from the others
            room = int(sum(one.elements * max(one.least, self.bits) for one in items.values()))
        # Without a measurement, each value of each tensor counts alike.
        known = any(costs_of.values())
        costs = [
            costs_of.get(name, 0.0) if known else float(one.elements) for name, one in items.items()
        ]
        found = _frugal.allocate_widths(elements, costs, least, room) if room > 0 else []
        if not found:
            needed = self._whole + sum(n * b for n, b in zip(elements, least)) // 8
            raise ValueError(
                f"[compress] expected a budget of {readable(needed)} or more, which the last step "
                f"needs with the fewest bits, got {readable(self.budget or 0)}"
            )
        self._planned = dict(zip(items, found))

    def state(self) -> Dict[str, Any]:
        return {
            "planned": dict(self._planned),
            "costs": dict(self._costs),
            "items": {name: list(one) for name, one in self.items.items()},
            "whole": self._whole,
        }

    def restore(self, state: Dict[str, Any]) -> None:
        if not isinstance(state, dict) or not state.keys() >= self.state().keys():
            raise ValueError(
                f"[compress] expected widths as state_dict() gives them, with {list(self.state())}; got {state}"
            )
        if state["planned"] and not self.adapts:
            raise ValueError(
                '[compress] expected a state of fixed bits, got one with widths for each tensor; give the context '
                'policy="gact" or a budget, as that of the state had'
            )
        self._planned = dict(state["planned"])
        self._costs = dict(state["costs"])
        self.items = {name: Item(*one) for name, one in state["items"].items()}
        self._whole = state["whole"]
