"""What a step saved and how it was kept, for people and programs."""

from typing import Any, Dict, List


def readable(number: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if abs(number) < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.2f} GiB"


class Row:
    """The saves of one module, or of all of them.

    saved: the bytes that PyTorch would hold for them, packed: the bytes of what is kept in codes,
    whole: the bytes of what is kept as it is, by the reason.
    """

    def __init__(self) -> None:
        self.saved = 0
        self.packed = 0
        self.whole: Dict[str, int] = {}

    @property
    def kept(self) -> int:
        """The bytes of all that is kept."""
        return self.packed + sum(self.whole.values())


class Memory:
    """The saves of the last step: print() it. Parameters and inputs, which live anyway, are left out."""

    def __init__(self) -> None:
        self.total = Row()
        self.modules: Dict[str, Row] = {}
        self.peak = 0
        self.pack_seconds = 0.0

    @property
    def saved(self) -> int:
        """The bytes that PyTorch would hold."""
        return self.total.saved

    @property
    def packed(self) -> int:
        """The bytes of what is kept in codes."""
        return self.total.packed

    @property
    def whole(self) -> Dict[str, int]:
        """The bytes of what is kept as it is, by the reason."""
        return dict(self.total.whole)

    @property
    def kept(self) -> int:
        """The bytes of all that is kept."""
        return self.total.kept

    @property
    def ratio(self) -> float:
        """How many times fewer bytes are kept."""
        return self.saved / self.kept if self.kept else 1.0

    def add(self, module: str, saved: int, packed: int, whole: int, why: str) -> None:
        """Counts a save of a module; `why` it stays whole, or ""."""
        for row in (self.total, self.modules.setdefault(module, Row())):
            row.saved += saved
            row.packed += packed
            if why:
                row.whole[why] = row.whole.get(why, 0) + whole

    def to_dict(self) -> Dict[str, Any]:
        """The same as JSON can hold it."""

        def row(of: Row) -> Dict[str, Any]:
            return {"saved": of.saved, "packed": of.packed, "whole": dict(of.whole)}

        return {
            **row(self.total),
            "kept": self.kept,
            "ratio": self.ratio,
            "peak": self.peak,
            "modules": {name: row(of) for name, of in self.modules.items()},
        }

    def __str__(self) -> str:
        def columns(name: str, row: Row) -> List[str]:
            whole = ", ".join(
                f"{readable(size)} {why}"
                for why, size in sorted(row.whole.items(), key=lambda one: -one[1])
                if size > 0
            )
            return [name, readable(row.saved), readable(row.packed), whole]

        rows = [["module", "saved", "packed", "whole"]]
        rows += [columns(name or "-", row) for name, row in self.modules.items()]
        rows.append(columns("all", self.total))
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = [
            f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}".rstrip()
            for row in rows
        ]
        lines.append(
            f"kept {readable(self.kept)} of {readable(self.saved)}, {self.ratio:.1f} times less; "
            f"peak {readable(self.peak)}"
        )
        return "\n".join(lines)
