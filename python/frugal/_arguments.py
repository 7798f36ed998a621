"""What is wrong with the arguments of a function of the module, in words."""

import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

# The functions that others of the package call, by the names that programs know.
_NAMES = {
    "forward": "network",
    "make_network": "network",
    "make_optimizer": "optimizer",
    "predict_arrays": "predict",
    "predict_each": "predict",
    "run_op": "op",
}


class _Parameter(NamedTuple):
    name: str
    kind: str  # the type as pybind11 writes it
    needed: bool


def _split(text: str, at: str = ",") -> List[str]:
    """The parts of a text between the characters `at` that stand in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[({") - (letter in "])}")
        if letter == at and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _parameters(signature: str) -> List[_Parameter]:
    """Those of "(self: Optimizer, lr: float) -> None" or "Policy(bits: int)"."""
    begin, depth = signature.index("("), 0
    for end in range(begin, len(signature)):
        depth += (signature[end] in "[({") - (signature[end] in "])}")
        if depth == 0:
            break
    found = []
    for part in _split(signature[begin + 1 : end]):
        name, _, rest = part.partition(":")
        kind, *default = _split(rest, "=")
        found.append(_Parameter(name.strip(), kind, not default))
    return found


def _inner(kind: str) -> List[str]:
    return _split(kind[kind.index("[") + 1 : -1])


def _base(kind: str) -> str:
    return kind.partition("[")[0].rpartition(".")[2]


def _fits(kind: str, value: Any) -> bool:
    """Does pybind11 take the value? True where nothing is known."""
    base = _base(kind)
    if base in ("Union", "Optional"):
        return value is None and base == "Optional" or any(_fits(one, value) for one in _inner(kind))
    if base in ("float", "SupportsFloat"):
        return hasattr(value, "__float__") or hasattr(value, "__index__")
    if base in ("int", "SupportsInt", "SupportsIndex"):
        return hasattr(value, "__index__")
    if base == "bool":
        return value is None or hasattr(value, "__bool__")
    if base == "str":
        return isinstance(value, (str, bytes))
    if base in ("List", "list", "Sequence"):
        if isinstance(value, (str, bytes)) or not hasattr(value, "__getitem__"):
            return False
        return not isinstance(value, dict) and all(_fits(_inner(kind)[0], one) for one in value)
    if base in ("Dict", "dict"):
        return isinstance(value, dict)
    if kind.startswith("frugal._frugal."):
        return any(one.__name__ == base for one in type(value).__mro__)
    return True


def _words(kind: str, many: bool = False) -> str:
    base = _base(kind)
    if base in ("Union", "Optional"):
        return " or ".join([_words(one) for one in _inner(kind)] + ["None"] * (base == "Optional"))
    if base in ("List", "list", "Sequence"):
        return "a list of " + _words(_inner(kind)[0], many=True)
    if base == "bool":
        return "True or False"
    one = {
        "float": "number",
        "SupportsFloat": "number",
        "int": "whole number",
        "SupportsInt": "whole number",
        "SupportsIndex": "whole number",
        "str": "text",
        "Dict": "dict",
        "object": "value",
    }.get(base, base.lower())
    if many:
        return one + "s"
    return ("an " if one[0] in "aeiou" else "a ") + one


def said(value: Any) -> str:
    """What a value is, for the end of a message."""
    kind = type(value).__name__
    if value is None:
        return "None"
    if isinstance(value, (bool, int, float, str, bytes, list, tuple)):
        text = repr(value)
        return f"{kind} {text if len(text) <= 60 else text[:57] + '...'}"
    shape = getattr(value, "shape", None)
    return f"{kind} of shape {list(shape)}" if isinstance(shape, tuple) else kind


def _wrong(parameters: List[_Parameter], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Optional[str]:
    """What does not go with one signature; None: nothing is known."""
    names = [one.name for one in parameters]
    given = dict(zip(names, args))
    shown = [name for name in names if name != "self"]
    takes = ", ".join(shown) or "none"
    if len(args) > len(parameters):
        more = len(args) - (len(parameters) - len(shown))
        return f"expected the arguments {takes}; got {more} without a name"
    for name, value in kwargs.items():
        if name not in names:
            return f"expected the arguments {takes}; got another one, {name}"
        if name in given:
            return f"expected one {name}, got two"
        given[name] = value
    for one in parameters:
        if one.name not in given:
            if one.needed:
                return f"expected {one.name}, {_words(one.kind)}; got nothing for it"
            continue
        value = given[one.name]
        if not _fits(one.kind, value):
            more = ""
            if _base(one.kind) == "Variable" and hasattr(value, "__array__"):
                more = "; frugal.variable() makes a variable of an array"
            return f"expected {one.name} to be {_words(one.kind)}, got {said(value)}{more}"
    for one in parameters:  # whole numbers have ranges, which no signature tells
        value = given.get(one.name)
        if _base(one.kind) == "int" and isinstance(value, int) and not 0 <= value < 2**31:
            return f"expected {one.name} to be a whole number in its range, got {value}"
    return None


def explained(text: str, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Optional[str]:
    """The message for what pybind11 says of arguments that it does not take; None: it is another error."""
    found = re.match(r"(\w+)\(\): incompatible (function|constructor) arguments", text)
    if found is None:
        return None
    signatures = re.findall(r"^ +\d+\. (.*)$", text, re.MULTILINE)
    if not signatures:
        return None
    name = _NAMES.get(found.group(1), found.group(1))
    if found.group(2) == "constructor":
        name = signatures[0].partition("(")[0].rpartition(".")[2].lower()
        args = args[1:]  # without self, which these signatures do not have
    wrong = _wrong(_parameters(signatures[0]), tuple(args), dict(kwargs))
    return None if wrong is None else f"[{name}] {wrong}"
