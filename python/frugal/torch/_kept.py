"""What is kept of saved tensors: entries, which several saves share, and the slots of the graph."""

import collections
import contextlib
import itertools
import threading
import weakref
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch.utils.dlpack import from_dlpack, to_dlpack

from frugal import _frugal
from frugal.torch import _rules

_NAMES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
}
FLOATING = frozenset(_NAMES)
BOOLS = (torch.bool,)


def flat_of(tensor: torch.Tensor) -> Optional[torch.Tensor]:
    """The memory of a dense tensor as one row; None: it has gaps, or elements that share a place."""
    expected = 1
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape)):
        if extent == 1:
            continue
        if stride != expected:
            return None
        expected *= extent
    return tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())


def bytes_of(tensor: torch.Tensor) -> int:
    """The bytes of its elements in memory, where an expanded one has each element once."""
    places = tensor.element_size()
    for stride, extent in zip(tensor.stride(), tensor.shape):
        places *= extent if stride != 0 or extent == 0 else 1
    return places


def columns_of(tensor: torch.Tensor, channels_second: bool) -> int:
    """The number of channels if they are neighbours in memory, else 0."""
    axes = tensor.dim()
    if axes < 2 or (channels_second and axes == 2 and tensor.stride(1) != 1):
        return 0
    channel = 1 if axes >= 4 or (axes == 3 and channels_second) else axes - 1
    if tensor.stride(channel) != 1:
        return 0
    channels = tensor.shape[channel]
    # Groups of a column should have many values, since each has its own range.
    return channels if channels > 1 and tensor.numel() // channels >= 128 else 0


def strides_of(shape: Any) -> Tuple[int, ...]:
    """Those of a dense tensor with the last axis innermost."""
    strides, size = [], 1
    for extent in reversed(shape):
        strides.append(size)
        size *= max(extent, 1)
    return tuple(reversed(strides))


def squares_of(difference: torch.Tensor) -> float:
    """The sum of the squares of a gradient's elements, which may be sparse or complex."""
    if difference.layout == torch.sparse_coo:
        difference = difference.coalesce()  # its rows may occur several times
    values = values_of(difference)
    dense = difference.to_dense() if values is None else values.detach()
    if dense.is_complex():
        dense = torch.view_as_real(dense.resolve_conj())
    return float(dense.double().square().sum())


class Stream:
    """The random stream of a step: each tensor of it draws from a part of its own."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.step = 0
        self._numbers = itertools.count()

    def begin_step(self) -> None:
        self.step += 1
        self._numbers = itertools.count()

    def next(self) -> Tuple[int, int, int]:
        return self.seed, self.step, next(self._numbers)


def _share(tensor: torch.Tensor) -> Any:
    return to_dlpack(tensor.detach())


def _torch(kept: Any, positive: bool = False) -> torch.Tensor:
    tensor = kept.unpack_positive() if positive else kept.unpack()
    return from_dlpack(tensor.__dlpack__())


def stream_of(tensor: torch.Tensor) -> Any:
    """The stream of CUDA that the op which saves a tensor runs on; None: the tensor is on the CPU."""
    return torch.cuda.current_stream(tensor.device) if tensor.is_cuda else None


def on_stream(stream: Any) -> Any:
    """A block whose work goes to the stream, on which what is packed was made."""
    if stream is None or stream == torch.cuda.current_stream(stream.device):
        return contextlib.nullcontext()
    return torch.cuda.stream(stream)


class _OnCuda:
    """What functions of the module need for tensors of CUDA: PyTorch's stream, and its memory."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.current_stream(device)
        self.buffers: List[torch.Tensor] = []

    def allocate(self, size: int) -> Any:
        self.buffers.append(torch.empty(size, dtype=torch.uint8, device=self.device))
        return _share(self.buffers[-1])

    def scratch(self, size: int) -> Any:
        return _share(torch.empty(size, dtype=torch.uint8, device=self.device))


class Codes:
    """The codes of one tensor. They lie on its device, and on CUDA in memory of PyTorch's allocator."""

    __slots__ = ("nbytes", "_kept", "_cuda", "_elements", "_dtype")

    def __init__(self, kept: Any, elements: int, dtype: torch.dtype, cuda: Any) -> None:
        self._kept = kept
        self._elements, self._dtype = elements, dtype
        self._cuda = cuda
        self.nbytes: int = kept.nbytes

    def unpack(self, positive: bool = False) -> torch.Tensor:
        cuda = self._cuda
        if cuda is None:
            return _torch(self._kept, positive)
        now = torch.cuda.current_stream(cuda.device)
        if now != cuda.stream:
            now.wait_stream(cuda.stream)
            for buffer in cuda.buffers:
                buffer.record_stream(now)
        out = torch.empty(self._elements, dtype=self._dtype, device=cuda.device)
        self._kept.unpack_into(_share(out), positive, now.cuda_stream, cuda.scratch)
        return out


def keep(
    function: Callable[..., Any], values: torch.Tensor, *args: Any, dtype: Optional[torch.dtype] = None, **options: Any
) -> Optional[Codes]:
    """The codes that a function of the module makes of dense values, on the present stream; None: it makes none.

    dtype: of what is unpacked, if it is not that of `values`.
    """
    dtype = values.dtype if dtype is None else dtype
    cuda = None
    if values.is_cuda:
        cuda = _OnCuda(values.device)
        options.update(on_stream=cuda.stream.cuda_stream, allocate=cuda.allocate)
        if function is _frugal.keep_groups:
            options["scratch"] = cuda.scratch
    kept = function(_share(values), *args, **options)
    return None if kept is None else Codes(kept, values.numel(), dtype, cuda)


class Entry:
    """What is kept of one range of memory, as it was at one moment.

    It holds codes of values, a bit for each sign, or both in one. While it waits, it holds the
    memory itself: the op that follows decides whether the values are needed.
    """

    def __init__(self, flat: torch.Tensor, columns: int, owner: "Owner") -> None:
        self.columns = columns
        self.dtype = flat.dtype
        self.elements = flat.numel()
        self.bits = 0  # of the codes of values
        self.waiting: Optional[torch.Tensor] = None
        self.version = 0
        self.stream: Any = None  # of CUDA, on which what waits was made
        self._codes: Optional[Codes] = None
        self._signs: Optional[Codes] = None
        self._owner = owner
        self._bytes = 0
        self._lock = threading.Lock()

    def _account(self) -> None:
        now = 0
        if self.waiting is not None:
            now += self.waiting.numel() * self.waiting.element_size()
        for kept in (self._codes, self._signs):
            if kept is not None:
                now += kept.nbytes
        self._owner.changed(now - self._bytes)
        self._bytes = now

    def __del__(self) -> None:
        self._owner.changed(-self._bytes)

    @property
    def kept_bytes(self) -> int:
        return self._bytes

    def wait(self, flat: torch.Tensor) -> None:
        self.waiting, self.version, self.stream = flat.detach(), flat._version, stream_of(flat)
        self._account()

    def pack_values(
        self, flat: torch.Tensor, bits: int, positive: bool, stream: Stream, draws: int
    ) -> bool:
        """False, with nothing done: a value is not finite, whose group would lose its other values."""
        seed, step, number = stream.next()
        number += draws << 40  # another stream of the same step
        columns = self.columns
        if positive:
            if columns == 0 or self.elements % (8 * columns) != 0:
                columns = 16
        codes = keep(
            _frugal.keep_groups, flat, bits, columns=columns, positive=positive, seed=seed, step=step, seq=number
        )
        if codes is None:
            return False
        self._codes, self.bits = codes, bits
        if positive:
            self._signs = None
        self.waiting = None
        self._account()
        return True

    def pack_signs(self, flat: torch.Tensor) -> None:
        self._signs = keep(_frugal.keep_positive, flat)
        self.waiting = None
        self._account()

    def settle(self) -> None:
        """Ends the wait: nobody asked for the values. Memory that was written stays, for positive()."""
        with self._lock:
            if self.waiting is not None and self.waiting._version == self.version:
                with on_stream(self.stream):
                    self.pack_signs(self.waiting)

    def forget_wait(self) -> None:
        """Another op keeps the memory, so nothing is made of it."""
        with self._lock:
            self.waiting = None
            self._account()

    def values(self) -> torch.Tensor:
        assert self._codes is not None
        return self._codes.unpack()

    def positive(self) -> torch.Tensor:
        with self._lock:
            waiting = self.waiting
        if waiting is not None:
            if waiting._version != self.version:
                raise RuntimeError(_CHANGED.format("the output of a relu"))
            # Without the lock: a mode that watches the block sees these ops, and may end the wait.
            return (waiting > 0).to(self.dtype)
        if self._signs is not None:
            return self._signs.unpack()
        assert self._codes is not None
        return self._codes.unpack(positive=True)

    def has_values(self) -> bool:
        return self._codes is not None


class Other:
    """What is kept in a form that no other save shares."""

    def __init__(self, codes: Codes, owner: "Owner") -> None:
        self._codes = codes
        self._owner = owner
        self.kept_bytes = codes.nbytes
        owner.changed(self.kept_bytes)

    def __del__(self) -> None:
        self._owner.changed(-self.kept_bytes)

    def values(self) -> torch.Tensor:
        return self._codes.unpack()


_CHANGED = (
    "one of the variables needed for gradient computation has been modified by an inplace "
    "operation: {} was written after it was saved"
)


class Owner:
    """The bytes that the entries of a context hold now, and the most that they held."""

    def __init__(self) -> None:
        self._now = self.peak = 0
        # The collector may free an entry, and so call changed(), in the middle of a call of it.
        self._changes: "collections.deque[int]" = collections.deque()
        self._lock = threading.Lock()

    @property
    def now(self) -> int:
        self._add_up()
        return self._now

    def changed(self, by: int) -> None:
        self._changes.append(by)
        self._add_up()

    def _add_up(self) -> None:
        while self._changes and self._lock.acquire(blocking=False):
            try:
                while self._changes:
                    self._now += self._changes.popleft()
                    self.peak = max(self.peak, self._now)
            finally:
                self._lock.release()


class Slot:
    """What the graph holds in the place of one saved tensor."""

    __slots__ = (
        "tensor", "version", "path", "once", "gives_back", "stream", "_get", "_shape", "_stride", "_offset", "__weakref__",
    )

    def __init__(self, tensor: torch.Tensor, path: str) -> None:
        # The graph must not hold a tensor that holds the graph.
        self.tensor: Optional[torch.Tensor] = tensor if tensor.grad_fn is None else tensor.detach()
        self.version = tensor._version
        self.path = path  # of the module that saved it
        self.once = ""  # the op whose first derivative alone is right with what is packed; empty: all are
        self.gives_back = False  # gives freed memory back before it is unpacked
        self.stream: Any = None  # of CUDA, on which the tensor was made
        self._get: Optional[Callable[[], torch.Tensor]] = None
        # A nested tensor, which stays whole, has no shape.
        self._shape: Any = () if tensor.is_nested else tensor.shape
        self._stride: Tuple[int, ...] = ()
        self._offset = 0

    def replace(self, get: Callable[[], torch.Tensor], stride: Tuple[int, ...], offset: int) -> None:
        self._get, self._stride, self._offset = get, stride, offset
        self.tensor = None

    def give_back(self, flat: torch.Tensor) -> None:
        """Holds the memory itself again, as one row, in the place of what was packed of it."""
        self.tensor = flat.as_strided(self._shape, self._stride, flat.storage_offset() + self._offset)
        self.version = flat._version
        self._get = None

    def unpack(self) -> torch.Tensor:
        tensor = self.tensor
        if tensor is not None:
            if tensor._version != self.version:
                saved_in = f", saved in {self.path or 'the model'},"
                raise RuntimeError(_CHANGED.format(f"a tensor of shape {list(self._shape)}{saved_in}"))
            return tensor
        assert self._get is not None
        if self.gives_back:
            _frugal.give_back_freed()
        flat = self._get()
        return flat.as_strided(self._shape, self._stride, self._offset)


class Packed:
    """What was packed of one range of memory, until another op keeps the memory whole."""

    def __init__(self, codes: Any, dtype: torch.dtype) -> None:
        self.codes = weakref.ref(codes)  # an Entry or an Other
        self.dtype = dtype
        self.slots: List["weakref.ref[Slot]"] = []
        self.counted: List[Tuple[str, int]] = []  # bytes of codes by module
        self.name = ""  # of the width


class Table:
    """The entries of live memory, by the place that they are of."""

    class _Place(NamedTuple):
        reference: Any  # a weak one to the storage, so that its address is not given to another
        entries: Dict[Any, "weakref.ref[Entry]"]

    def __init__(self) -> None:
        self._places: Dict[int, Table._Place] = {}

    def find(self, tensor: torch.Tensor, key: Any) -> Optional[Entry]:
        place = self._places.get(_storage(tensor)._cdata)
        reference = None if place is None else place.entries.get(key)
        return None if reference is None else reference()

    def pin(self, tensor: torch.Tensor) -> int:
        """A number that no other storage has while this table knows this one."""
        storage = _storage(tensor)
        number = storage._cdata
        if number not in self._places:
            self._places[number] = Table._Place(_WeakStorage(storage), {})
        return number

    def add(self, tensor: torch.Tensor, key: Any, entry: Entry) -> None:
        self._places[self.pin(tensor)].entries[key] = weakref.ref(entry)

    def clear(self) -> None:
        self._places.clear()


_storage: Callable[[torch.Tensor], Any] = getattr(
    torch.Tensor, "untyped_storage", lambda tensor: tensor.storage()._storage
)


def values_of(tensor: torch.Tensor) -> Optional[torch.Tensor]:
    """The dense tensor that has a tensor's memory: of a sparse one its values. None: nobody sees it."""
    if tensor.layout == torch.strided:
        return tensor
    if tensor.layout == torch.sparse_coo:
        return tensor._values()
    return tensor.values() if tensor.layout in _ROWS else None


_ROWS = tuple(
    getattr(torch, name)
    for name in ("sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")
    if hasattr(torch, name)
)


class _WeakStorage:
    def __init__(self, storage: Any) -> None:
        self._pointer = storage._weak_ref()
        self._free = type(storage)._free_weak_ref

    def __del__(self) -> None:
        self._free(self._pointer)
