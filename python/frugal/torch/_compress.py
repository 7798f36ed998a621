"""compress(): what a model saves for the backward pass, in a few bits."""

import math
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import torch
from torch.nn.modules import module as _modules
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.parameter import is_lazy
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from frugal import _frugal
from frugal.torch import _hooks, _kept, _rules
from frugal.torch._kept import Entry, Other, Owner, Packed, Slot, Stream, Table
from frugal.torch._memory import Memory
from frugal.torch._widths import Widths, is_number

_WAIT = 4  # ops for which the output of a relu waits for somebody who needs its values


class _Mode(TorchDispatchMode):
    """Sees each op after its autograd part has saved its inputs."""

    def __init__(self, context: "compress") -> None:
        super().__init__()
        self._context = context

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        context = self._context
        if context._busy:
            return func(*args, **kwargs)
        context._before(func, args, kwargs)
        out = func(*args, **kwargs)
        context._after(func, args, kwargs, out)
        if func is _detach and not isinstance(out, torch.Tensor):
            # PyTorch 1.13 makes a number of the 2 in `x * 2`, and then misses the tensor in its backward pass.
            out = torch.tensor(out)
        return out


_detach = torch.ops.aten.detach.default


def _drop_modes(context: "compress") -> None:
    """Ends the modes of a context, which lie above those of others."""
    while True:
        mode = _python_dispatch._get_current_dispatch_mode()
        if not isinstance(mode, _Mode) or mode._context is not context:
            break
        _python_dispatch._pop_mode()
    # PyTorch 1.13 does this after it has taken the last mode away, and an interrupt may come between.
    if hasattr(_python_dispatch, "_set_torch_dispatch_mode") and _python_dispatch._len_torch_dispatch_stack() == 0:
        _python_dispatch._set_torch_dispatch_mode(None)


def _is_innermost(context: "compress") -> bool:
    """Is its mode above those of others? Contexts are none of these: they add no ops to those that they see."""
    for i in range(_python_dispatch._len_torch_dispatch_stack() - 1, -1, -1):
        mode = _python_dispatch._get_dispatch_stack_at(i)
        if not isinstance(mode, _Mode):
            return False
        if mode._context is context:
            return True
    return False


def _hooks_of_modules() -> List[Any]:
    """The tables of the hooks that PyTorch calls for all modules."""
    names = ("_global_forward_pre_hooks", "_global_forward_hooks", "_global_forward_hooks_always_called")
    return [getattr(_modules, name) for name in names if hasattr(_modules, name)]


class _Event:
    """The op that was dispatched last, as far as the saves of its outputs need it."""

    __slots__ = ("op", "func", "args", "kwargs", "out")

    def __init__(self, op: str, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        self.op, self.func, self.kwargs = op, func, kwargs
        self.args = tuple(None if isinstance(a, torch.Tensor) else a for a in args)
        first = args[0] if args and isinstance(args[0], torch.Tensor) else None
        self.kwargs = {"shape": None if first is None or first.is_nested else first.shape, **kwargs}
        # Pointers alone: a tensor that nobody else holds is freed as without this.
        self.out = [
            (one.data_ptr(), one.numel())
            for one in (out if isinstance(out, (tuple, list)) else (out,))
            if isinstance(one, torch.Tensor) and one.layout == torch.strided
        ]

    def made(self, tensor: torch.Tensor) -> bool:
        return (tensor.data_ptr(), tensor.numel()) in self.out

    def forget(self, tensor: torch.Tensor) -> None:
        self.out.remove((tensor.data_ptr(), tensor.numel()))


_names: Dict[Any, str] = {}


def _name_of(func: Any) -> str:
    name = _names.get(func)
    if name is None:
        packet = getattr(func, "overloadpacket", func)
        name = _names[func] = getattr(packet, "__name__", str(packet))
    return name


_POOLS = {"max_pool2d_with_indices": 2, "max_pool3d_with_indices": 3}


def _needs_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


class _Watched:
    """Stands for the forward pass of a model while contexts watch it.

    A copy of the model, or one that was pickled, has a forward pass of its own.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._own = model.__dict__.get("forward")
        self._forward = model.forward
        self._contexts: List[Tuple["compress", str]] = []

    def add(self, context: "compress", prefix: str) -> None:
        self._contexts.append((context, prefix))
        self._model.forward = self  # type: ignore[method-assign]

    def remove(self, context: "compress") -> None:
        self._contexts = [one for one in self._contexts if one[0] is not context]
        if self._contexts or self._model.__dict__.get("forward") is not self:
            return
        if self._own is None:
            del self._model.forward
        else:
            self._model.forward = self._own  # type: ignore[method-assign]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        thread = threading.get_ident()
        for context, prefix in reversed(self._contexts):  # the one that was entered last
            if context._thread == thread:
                return context._run(self._forward, prefix, args, kwargs)
        return self._forward(*args, **kwargs)

    def __reduce__(self) -> Any:
        if self._own is not None:
            return _itself, (self._own,)
        return getattr, (self._model, "forward")  # the model has no attributes yet, so it is its class's


# A step that saves this many bytes takes much longer than giving freed memory back three times.
_LARGE = 256 << 20


def _itself(value: Any) -> Any:
    return value


class compress:
    """A context in which what is saved for the backward pass is packed.

        with ft.compress(model, bits=4) as memory:
            loss = loss_of(model(x))
            loss.backward()
        print(memory)

    model: the module whose forward pass is watched, or a list of modules, as of a network and its
        loss. What is saved outside of them stays whole, because nobody knows which op saved it.
        None: all ops of the block are watched.
    bits: of each value that is packed, 1 to 16; without a word 4. 0: nothing is packed and nothing
        changes.
    policy: "fixed", or "gact": `bits` is an average, and adapt() gives each tensor a width by how
        much its rounding disturbs the gradient.
    budget: the bytes that a step may keep, such as "2 GiB". The first step packs in 2 bits; from
        then on widths are the largest that fit, by what the step before has kept.
    preset: a name of Frugal's presets instead of bits and policy: "lossless", "safe", "small" or
        "smallest".
    seed: of the random rounding. A context draws other numbers in each of its steps.
    min_elements: smaller tensors stay whole.

    An object may be entered many times, one step after the other, but by one thread at once. The
    backward pass may also come after the block.
    """

    def __init__(
        self,
        model: Union[torch.nn.Module, Sequence[torch.nn.Module], None] = None,
        bits: Optional[float] = None,
        *,
        policy: Optional[str] = None,
        budget: Union[int, str, None] = None,
        preset: Optional[str] = None,
        seed: int = 0,
        min_elements: int = 1024,
    ) -> None:
        self._widths = Widths(bits, policy, budget, preset)
        models = [] if model is None else [model] if not isinstance(model, (list, tuple)) else model
        for one in models:
            if not isinstance(one, torch.nn.Module):
                raise TypeError(
                    "[compress] expected a module, a list of modules, or None for all ops of the block; "
                    f"got {type(one).__name__}"
                )
            if isinstance(one, torch.jit.ScriptModule):
                raise TypeError(
                    "[compress] expected a module whose forward pass is Python's, got a "
                    f"{type(one).__name__} of torch.jit, whose ops cannot be watched; give the module "
                    "that it was made of"
                )
        if model is not None and not models:
            raise ValueError(
                "[compress] expected a module or more, got an empty list; without a model all ops of the "
                "block are watched"
            )
        for name, number, end in (("seed", seed, 2**64), ("min_elements", min_elements, 2**63)):
            if not is_number(number, whole=True) or not 0 <= number < end:
                raise ValueError(
                    f"[compress] expected {name} to be a whole number from 0 to {end - 1}, got {number!r}"
                )
        # Each one once: a model that is given twice is watched once.
        self.models: Tuple[torch.nn.Module, ...] = tuple({id(one): one for one in models}.values())
        self.min_elements = int(min_elements)
        self.memory = Memory()
        self._stream = Stream(int(seed))
        self._begin_life()

    def _begin_life(self) -> None:
        """Makes what a context has beside its options and its state."""
        self._owner = Owner()
        self._table = Table()
        self._busy = False
        self._active = 0  # forward passes that are watched now
        self._pending: List[Tuple[torch.Tensor, Slot]] = []
        self._event: Optional[_Event] = None
        self._waiting: List[Tuple[int, Entry]] = []
        self._ops = 0
        self._counted: Dict[Any, bool] = {}
        self._packed: Dict[Any, List[Packed]] = {}  # by the place of the memory
        self._small: set = set()  # the small tensors that were counted
        self._inputs: set = set()  # storages that the caller holds
        self._lasting: set = set()  # storages of parameters and buffers
        self._path: List[str] = []
        # A step has hundreds of modules, so their names are found once.
        self._names: "weakref.WeakKeyDictionary[torch.nn.Module, str]" = weakref.WeakKeyDictionary()
        self._named = False  # in this step
        self._gave_back = False  # after this step's forward pass
        self._half = 0  # of the bytes that the last step saved; 0: memory is not given back there
        self._entered = False
        self._hooked = False  # are PyTorch's hooks those of this context?
        self._others = 0  # pairs of hooks of others when the block began
        self._covered = False  # another context began within a block of this one
        self._thread = 0

    # A copy, as of a model that has a context for an attribute, is a context of the copied model: with
    # the same options and state, and not entered.
    def __getstate__(self) -> Dict[str, Any]:
        return {
            "models": self.models,
            "min_elements": self.min_elements,
            "memory": self.memory,
            "widths": self._widths,
            "seed": self._stream.seed,
            "step": self._stream.step,
        }

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.models, self.min_elements = state["models"], state["min_elements"]
        self.memory, self._widths = state["memory"], state["widths"]
        self._stream = Stream(state["seed"])
        self._stream.step = state["step"]
        self._begin_life()

    # ---- the block

    # An interrupt (Ctrl-C) may come at each bytecode. So _frugal.block() calls these functions: _end() as
    # often as it is interrupted, also where _begin() is. Each part of _end() looks at what is there.

    def _check(self) -> None:
        if self._entered:
            raise RuntimeError("[compress] expected a context that is not entered already")

    def _begin(self) -> Memory:
        self._give_back()  # what the last step and the update have freed
        self._stream.begin_step()
        self._widths.begin_step()
        self.memory = Memory()
        self._owner.peak = self._owner.now
        self._gave_back = False
        self._named = False
        self._thread = threading.get_ident()
        self._entered = True
        if self.bits == 0:
            return self.memory
        self._others = _hooks.here.others
        for context in _hooks.here.contexts:
            context._covered = True
        _hooks.here.contexts.append(self)
        _frugal.do_noted(self, "_hooked", _hooks.push_own, self._pack, _unpack)
        if not self.models:
            self._active = 1
            _Mode(self).__enter__()
            return self.memory
        for i, model in enumerate(self.models):
            self._watch(model, self._prefix(i))
        register_module_forward_pre_hook(self._enter_module)
        register_module_forward_hook(self._leave_module)
        return self.memory

    def _end(self) -> None:
        if self._entered and threading.get_ident() != self._thread:
            raise RuntimeError("[compress] expected the block to end in the thread in which it began, got another one")
        _drop_modes(self)  # before all else, so that PyTorch's own functions for them do nothing below
        try:
            self._settle()
        finally:
            self._leave()

    def _leave(self) -> None:
        """Ends what _begin() has begun."""
        for hooks in _hooks_of_modules():
            for number, hook in list(hooks.items()):
                if getattr(hook, "__self__", None) is self:
                    hooks.pop(number, None)
        for model in self.models:
            watched = model.__dict__.get("forward")
            if isinstance(watched, _Watched):
                watched.remove(self)
        self._active = 0
        self._busy = False
        self._path.clear()
        self._inputs.clear()
        self._table.clear()
        self._counted.clear()
        self._packed.clear()
        self._small.clear()
        self._lasting.clear()
        _frugal.undo_noted(self, "_hooked", _hooks.pop_own)
        if self in _hooks.here.contexts:
            _hooks.here.contexts.remove(self)
        if self._entered:
            self.memory.peak = self._owner.peak
            if self.bits:
                self._widths.end_step(self.memory.kept)
            self._entered = False

    if TYPE_CHECKING:

        def __enter__(self) -> Memory: ...
        def __exit__(self, *exception: Any) -> None: ...

    else:
        __enter__, __exit__ = _frugal.block(_check, _begin, _end)

    @property
    def bits(self) -> float:
        """The bits of a value: the average, where tensors have widths of their own."""
        return self._widths.bits

    def widths(self) -> Dict[str, int]:
        """The bits of each tensor of the last step that was packed by values, by who packed it."""
        return {name: item.bits for name, item in self._widths.items.items()}

    def adapt(self, step: Callable[[], Any]) -> Dict[str, float]:
        """Measures how much each tensor's rounding disturbs the gradient, and sets the widths.

        step: a function that runs the forward and the backward pass of one batch, without this
            context and without an update. It is called once, and once more for each packed tensor:
            each time that tensor alone draws other numbers, and half of the squared difference of
            the gradients is the variance that its rounding causes.

        Parameters, their gradients, buffers and the generator of PyTorch are afterwards as they
        were. Gives the variances at the present widths by the tensors' names. Call it after the
        first steps and then about every thousand steps, as GACT does. Where it ends with an error,
        as of gradients that are not finite, the widths stay as they were.
        """
        if not self._widths.adapts:
            raise RuntimeError('[compress] expected policy="gact" or a budget, which have widths to set')
        if not self.models:
            raise RuntimeError("[compress] expected a context of a model, whose gradients are measured")
        parameters = [p for model in self.models for p in model.parameters() if p.requires_grad]
        buffers = [b for model in self.models for b in model.buffers()]
        kept = [b.clone() for b in buffers]
        gradients = [p.grad for p in parameters]
        generator, generators = torch.get_rng_state(), _cuda_generators()
        number, widths = self._stream.step, self._widths.state()
        self._covered = False

        def run(other: str) -> List[Optional[torch.Tensor]]:
            with torch.no_grad():
                for buffer, value in zip(buffers, kept):
                    buffer.copy_(value)
            for p in parameters:
                p.grad = None
            torch.set_rng_state(generator)
            _set_cuda_generators(generators)
            self._stream.step = number
            self._widths.other = other
            with self:
                step()
            return [p.grad for p in parameters]

        try:
            first = run("")
            items = dict(self._widths.items)
            if all(gradient is None for gradient in first):
                raise ValueError(
                    "[compress] expected adapt(step) to run a step that leaves gradients in `.grad` of the "
                    "model's parameters, got none; does it call backward()?"
                )
            if not all(_kept.squares_of(gradient) < math.inf for gradient in first if gradient is not None):
                raise ValueError(
                    "[compress] expected a step of adapt() whose loss and gradients are finite, got gradients "
                    "that are not; the widths stay as they were"
                )
            if not items and self._covered:
                raise ValueError(
                    "[compress] expected a step of adapt() without another context, got one that gets all that "
                    "the step saves"
                )
            variances = {}
            for name in items:
                again = run(name)
                variances[name] = 0.5 * sum(
                    _kept.squares_of(a - b) for a, b in zip(first, again) if a is not None and b is not None
                )
            self._widths.learn(items, variances)
        except BaseException:
            self._widths.restore(widths)
            raise
        finally:
            self._widths.other = ""
            with torch.no_grad():
                for buffer, value in zip(buffers, kept):
                    buffer.copy_(value)
            for p, gradient in zip(parameters, gradients):
                p.grad = gradient
            torch.set_rng_state(generator)
            _set_cuda_generators(generators)
            self._stream.step = number
        return variances

    def state_dict(self) -> Dict[str, Any]:
        """What the next step's random numbers and widths follow from; json can write it."""
        return {"seed": self._stream.seed, "step": self._stream.step, "widths": self._widths.state()}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on from what state_dict() of a context gave."""
        if not isinstance(state, dict) or not state.keys() >= self.state_dict().keys():
            given = list(state) if isinstance(state, dict) else type(state).__name__
            raise ValueError(
                "[compress] expected what state_dict() of a context gave, with "
                f"{list(self.state_dict())}; got {given}"
            )
        self._widths.restore(state["widths"])
        self._stream.seed, self._stream.step = state["seed"], state["step"]

    def _watch(self, model: torch.nn.Module, prefix: str) -> None:
        for held in (model.parameters(), model.buffers()):
            for one in held:
                if is_lazy(one):  # has no memory yet
                    continue
                values = _kept.values_of(one)
                if values is not None:
                    self._lasting.add(_kept._storage(values)._cdata)
        watched = model.__dict__.get("forward")
        if not isinstance(watched, _Watched):
            watched = _Watched(model)
        watched.add(self, prefix)

    def _run(self, forward: Callable[..., Any], prefix: str, args: Any, kwargs: Any) -> Any:
        """The forward pass of a model, watched."""
        if self._active or _in_backward():
            return forward(*args, **kwargs)
        self._note_inputs(args)
        self._note_inputs(tuple(kwargs.values()))
        self._active += 1
        if prefix:
            self._path.append(prefix)
        try:
            _Mode(self).__enter__()
            return forward(*args, **kwargs)
        finally:
            _drop_modes(self)
            self._active -= 1
            self._settle()
            self._path.clear()
            self._inputs.clear()
            if not self._gave_back and not self._active:
                self._gave_back = self._give_back()

    def _prefix(self, i: int) -> str:
        """What comes before the names of the modules of model i: the first one has them as they are."""
        return type(self.models[i]).__name__ if i > 0 else ""

    def _name_of_module(self, module: torch.nn.Module) -> str:
        """The name of a module of the models; empty: it is a model, or no module of them."""
        name = self._names.get(module)
        if name is None and not self._named:
            self._named = True
            for i, model in enumerate(self.models):
                prefix = self._prefix(i)
                for path, one in model.named_modules():
                    self._names[one] = f"{prefix}.{path}" if prefix and path else path
            name = self._names.get(module)
        return name or ""

    # PyTorch calls both for the modules of all models and threads.
    def _enter_module(self, module: torch.nn.Module, inputs: Any) -> None:
        if self._active and threading.get_ident() == self._thread:
            name = self._name_of_module(module)
            if name:
                self._path.append(name)

    def _leave_module(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        if self._path and threading.get_ident() == self._thread and self._name_of_module(module):
            self._path.pop()

    def _note_inputs(self, values: Any) -> None:
        for value in values.values() if isinstance(values, dict) else values:
            if isinstance(value, torch.Tensor):
                values = _kept.values_of(value)
                # What another module made is not the caller's: the loss's input, for example.
                if values is not None and value.grad_fn is None:
                    self._inputs.add(_kept._storage(values)._cdata)
            elif isinstance(value, (tuple, list, dict)):
                self._note_inputs(value)

    def _give_back(self) -> bool:
        """Gives freed memory back to the system if the step is large, and says whether it did.

        Tensors that PyTorch frees leave gaps in the C library's heap. In a step of ResNet-50 they
        are a tenth of what the process takes.
        """
        if self.memory.saved < _LARGE:
            return False
        self._half = self.memory.saved // 2
        _frugal.give_back_freed()
        return True

    # ---- events, in the order in which they come

    def _pack(self, tensor: torch.Tensor) -> Slot:
        if self._busy or threading.get_ident() != self._thread:
            return Slot(tensor, "")
        self._busy = True  # what this does is not watched
        try:
            path = self._path[-1] if self._path else ""
            slot = Slot(tensor, path)
            nested = tensor.is_nested
            if not nested and (tensor.layout != torch.strided or tensor.numel() >= self.min_elements):
                return self._pack_alone(tensor, slot)
            key = (tensor.data_ptr(), tensor.numel())
            if key not in self._small:  # memory that several ops save counts once
                self._small.add(key)
                size = (
                    tensor.numel() * tensor.element_size() if nested else _kept.bytes_of(tensor)
                )
                self.memory.add(path, size, 0, size, "nested" if nested else "small")
            return slot
        finally:
            self._busy = False

    def _pack_alone(self, tensor: torch.Tensor, slot: Slot) -> Slot:
        event = self._event
        if not self._active:
            self._count(tensor, 0, "outside of the model")
            return slot
        why = "recomputed" if _in_backward() else self._stays(tensor)
        if not why and not _is_innermost(self):
            # Its ops come between the op that saves and the next one that this context sees.
            self._event, why = None, "beside another dispatch mode"
        if why:
            self._count(tensor, 0, why)
            return slot
        slot.stream = _kept.stream_of(tensor)
        form = None
        if event is not None and event.made(tensor):
            node = tensor.grad_fn
            if node is not None:
                form = _rules.output_form(node)
            elif tensor.dtype == torch.int64 and event.op in _POOLS:
                form = "places"
        if form is None or event is None:
            self._pending.append((tensor, slot))
            return slot
        event.forget(tensor)  # what is saved now of the same tensor, the next op saves
        self._keep(tensor, slot, form, event.op.rstrip("_"), event.func, event.args, event.kwargs)
        return slot

    def _before(self, func: Any, args: Any, kwargs: Any) -> None:
        self._ops += 1
        if self._pending:
            self._resolve(func, args, kwargs)
        while self._waiting and self._waiting[0][0] < self._ops - _WAIT:
            self._end_wait(self._waiting.pop(0)[1])

    def _after(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        name = _name_of(func)
        saves = name in _rules.OPS_WITH_OUTPUTS or name in _POOLS or name == "clone"
        if saves and self._sees_saves() and torch.is_grad_enabled() and any(map(_needs_gradient, args)):
            self._event = _Event(name, func, args, kwargs, out)
        else:
            self._event = None

    def _sees_saves(self) -> bool:
        """Are the hooks of this context the innermost ones? Those of others take what an op saves."""
        here = _hooks.here
        return here.others <= self._others and here.contexts[-1:] == [self]

    def _resolve(self, func: Any, args: Any, kwargs: Any) -> None:
        """Finds what `func`, which comes now, has saved. What it has not saved stays whole."""
        pending, self._pending = self._pending, []
        op = _name_of(func)
        # Without gradients an op saves nothing, so a function of the user's own has saved what is pending.
        known = _rules.rules_of(op, args) if torch.is_grad_enabled() else ()
        rules = {rule.argument: rule for rule in known}
        found: List[Optional[_rules.Saved]] = [None] * len(pending)
        for i in range(len(pending) - 1, -1, -1):
            tensor = pending[i][0]
            for number, rule in list(rules.items()):
                argument = args[number] if number < len(args) else None
                # An op in place saves a copy that was made before it.
                is_copy = (
                    op.endswith("_")
                    and number == 0
                    and tensor.grad_fn is not None
                    and tensor.grad_fn.name() == "CloneBackward0"
                    and argument is not None
                    and tensor.shape == argument.shape
                )
                if argument is not tensor and not is_copy:
                    continue
                if rule.needs and not any(
                    _needs_gradient(args[k]) for k in rule.needs if k < len(args)
                ):
                    continue
                del rules[number]
                found[i] = rule
                break
        written = _rules.WRITTEN.get(op, len(args))
        for (tensor, slot), rule in zip(pending, found):
            if written < len(args) and tensor is args[written]:
                self._count(tensor, 0, f"written by {op}")
            elif rule is not None and rule.form == "shape":
                self._keep(tensor, slot, "shape", op, func, args, kwargs)
            elif tensor.grad_fn is None or tensor.dtype not in _kept.FLOATING:
                product = rule is not None and op in _rules.PRODUCTS and tensor.dtype in _kept.FLOATING
                self._keep(tensor, slot, "two" if not product else "two or values", op, func, args, kwargs)
            elif rule is None:
                self._count(tensor, 0, f"read by {op}, which no rule knows")
            else:
                self._keep(tensor, slot, rule.form, op.rstrip("_"), func, args, kwargs)

    def _settle(self) -> None:
        """What still waits is decided: the forward pass has ended."""
        pending, self._pending = self._pending, []
        waiting, self._waiting = self._waiting, []
        self._event = None
        busy, self._busy = self._busy, True
        try:
            for tensor, _ in pending:
                self._count(tensor, 0, "outside of the model")
            for _, entry in waiting:
                self._end_wait(entry)
        finally:
            self._busy = busy

    # ---- what is kept

    def _stays(self, tensor: torch.Tensor) -> str:
        """Why the tensor stays whole, whatever reads it; empty: it need not."""
        if tensor.numel() < self.min_elements:
            return "small"
        if tensor.device.type != "cpu":
            why = _why_whole_on_device(tensor)
            if why:
                return why
        if tensor._is_zerotensor():  # forward-mode differentiation has such tangents
            return "zeros without memory"
        if tensor.layout != torch.strided:
            values = _kept.values_of(tensor)
            lasts = values is not None and _kept._storage(values)._cdata in self._lasting
            return "parameter" if lasts else "sparse"
        if tensor.is_complex():
            return "complex"
        if tensor.dtype not in _kept.FLOATING and tensor.dtype not in (torch.bool, torch.int64):
            return "integers"
        if _rules.is_parameter(tensor):
            return "parameter"
        storage = _kept._storage(tensor)._cdata
        if storage in self._lasting:
            return "parameter"
        if storage in self._inputs:
            return "input"
        return ""

    def _place(self, tensor: torch.Tensor) -> Any:
        return self._table.pin(tensor), tensor.storage_offset(), _kept.bytes_of(tensor), tensor._version

    def _count(self, tensor: torch.Tensor, packed: int, why: str) -> None:
        if why in ("parameter", "input", "zeros without memory"):
            return
        values = _kept.values_of(tensor)
        if values is None:  # a layout of a library, whose memory nobody sees
            return
        tensor = values
        # Memory that several ops save counts once, as PyTorch holds it once.
        key = self._place(tensor)
        size = _kept.bytes_of(tensor)
        first = key not in self._counted
        if first:
            self._counted[key] = False
        whole = 0
        if why and not self._counted[key]:
            self._counted[key] = True
            whole = size
            self._give_back_whole(tensor, key)
        module = self._path[-1] if self._path else ""
        self.memory.add(module, size if first else 0, packed, whole, why)

    def _note_packed(
        self, flat: torch.Tensor, slot: Slot, codes: Any, packed: int = 0, name: str = ""
    ) -> None:
        """Remembers what was packed of dense memory, for _give_back_whole()."""
        all_of_it = self._packed.setdefault(self._place(flat), [])
        one = next((one for one in all_of_it if one.codes() is codes), None)
        if one is None:
            one = Packed(codes, flat.dtype)
            all_of_it.append(one)
        one.slots.append(weakref.ref(slot))
        one.name = name or one.name
        if packed:
            one.counted.append((self._path[-1] if self._path else "", packed))

    def _note_other(self, tensor: torch.Tensor, copied: bool, slot: Slot, other: Other) -> None:
        if not copied:
            flat = _kept.flat_of(tensor.detach())
            assert flat is not None
            self._note_packed(flat, slot, other, other.kept_bytes)

    def _give_back_whole(self, tensor: torch.Tensor, key: Any) -> None:
        """An op keeps this memory whole, so those that packed it before keep it for nothing."""
        flat = _kept.flat_of(tensor.detach()) if key in self._packed else None
        if flat is None:
            return
        for one in self._packed.pop(key):
            if one.dtype != flat.dtype:
                continue
            for reference in one.slots:
                slot = reference()
                if slot is not None and slot.tensor is None:
                    slot.give_back(flat)
            for path, packed in one.counted:
                self.memory.add(path, 0, -packed, 0, "")
            self._widths.items.pop(one.name, None)
            codes = one.codes()
            if isinstance(codes, Entry):
                codes.forget_wait()

    def _keep(
        self,
        tensor: torch.Tensor,
        slot: Slot,
        form: str,
        op: str,
        func: Any,
        args: Any,
        kwargs: Any,
    ) -> None:
        begun = time.perf_counter()
        lossy = form in ("values", "fine", "levels", "two or values")
        if (lossy or op in _rules.NORMS) and not _rules.keeps_second(op, args):
            slot.once = op
        if form != "shape" and self._counted.get(self._place(tensor)):
            why = "whole for another op"  # so this one keeps it for nothing
        else:
            # All below works on detached tensors: an interrupt could leave a block of no_grad() half left.
            with _kept.on_stream(slot.stream):
                why = self._pack_as(tensor, slot, form, op, func, args, kwargs)
        if why:
            self._count(tensor, 0, why)
        self.memory.pack_seconds += time.perf_counter() - begun

    def _pack_as(
        self,
        tensor: torch.Tensor,
        slot: Slot,
        form: str,
        op: str,
        func: Any,
        args: Any,
        kwargs: Any,
    ) -> str:
        """Packs, or says why not."""
        if form == "shape":
            shape, stride, dtype, device = tensor.shape, tensor.stride(), tensor.dtype, tensor.device
            size = 1 + sum((n - 1) * s for n, s in zip(shape, stride) if n > 0)
            slot.replace(lambda: torch.empty(size, dtype=dtype, device=device), stride, 0)
            self._count(tensor, 0, "")
            return ""
        if form in ("values", "fine", "positive"):
            return self._pack_entry(tensor, slot, form, op)
        flat = _kept.flat_of(tensor.detach())
        whole = flat is None
        if flat is None:
            bits = _rules.width_of(op, self._widths.base) if form == "levels" else 1
            if 8 * _kept.bytes_of(tensor) <= bits * tensor.numel():
                return "expanded"  # its codes would take more
            flat = tensor.detach().contiguous().view(-1)
        stride = _kept.strides_of(tensor.shape) if whole else tensor.stride()
        if form in ("two", "two or values"):
            kept = _kept.keep(_frugal.keep_two_values, _as_bytes(flat))
            if kept is None and form == "two or values":
                return self._pack_entry(tensor, slot, "values", op)
            if kept is None:
                return "made without a gradient" if tensor.grad_fn is None else "integers"
            other = Other(kept, self._owner)
            if tensor.dtype == torch.bool:
                slot.replace(lambda: other.values().view(torch.bool), stride, 0)
            else:
                slot.replace(other.values, stride, 0)
            self._note_other(tensor, whole, slot, other)
        elif form == "places":
            kept = self._places(tensor, args, kwargs)
            if kept is None:
                return "integers"
            other = Other(kept, self._owner)
            slot.replace(other.values, _kept.strides_of(tensor.shape), 0)
        else:
            numbers = _rules.numbers_of(func, args, kwargs)
            width = _rules.width_of(op, self._widths.base)
            table = _rules.levels(op, numbers, width, tensor.dtype)
            if table is None:
                return f"read by {op}, which no rule knows"
            seed, step, number = self._stream.next()
            kept = _kept.keep(
                _frugal.keep_levels,
                _rules.derivative(op, flat, numbers),
                table.levels,
                width,
                table.values,
                _kept._NAMES[tensor.dtype],
                seed,
                (step << 32) + number,
                dtype=tensor.dtype,
            )
            if kept is None:
                return "not finite"
            other = Other(kept, self._owner)
            slot.replace(other.values, stride, 0)
            self._note_other(tensor, whole, slot, other)
        self._count(tensor, kept.nbytes, "")
        return ""

    def _pack_entry(self, tensor: torch.Tensor, slot: Slot, form: str, op: str) -> str:
        base: Optional[torch.Tensor] = tensor
        flat = None if tensor.is_neg() else _kept.flat_of(tensor.detach())
        if flat is None:  # a view with gaps: the whole of which it is a part
            base = None if tensor.is_neg() else tensor._base
            # The real part of complex numbers is a part of another dtype.
            if base is not None and base.dtype == tensor.dtype and base.numel() <= 4 * tensor.numel():
                flat = _kept.flat_of(base.detach())
            if flat is None:
                base = None
                flat = tensor.detach().contiguous().view(-1)
        path = self._path[-1] if self._path else ""
        least = 8 if form == "fine" else 1
        bits = max(least, self._widths.base)
        key = (flat.storage_offset(), flat.numel(), flat._version, flat.dtype)
        entry = None if base is None else self._table.find(base, key)
        before = 0 if entry is None else entry.kept_bytes
        if entry is not None and form != "positive" and entry.has_values() and entry.bits < bits:
            entry = None  # another one with more bits takes its place in the table
            before = 0
        if entry is None:
            second = op in _rules.CHANNELS_SECOND
            entry = Entry(flat, _kept.columns_of(base if base is not None else tensor, second), self._owner)
            if base is not None:
                self._table.add(base, key, entry)
            if form == "positive":
                entry.wait(flat)
                self._waiting.append((self._ops, entry))
        name = ""
        if form != "positive" and not entry.has_values():
            positive = entry.waiting is not None or entry._signs is not None
            before = 0 if entry.waiting is not None else before
            name = self._widths.name(path, op)
            least = max(least, 2 if positive else 1)
            bits = self._widths.of(name, least)
            if not entry.pack_values(flat, bits, positive, self._stream, self._widths.draws(name)):
                return "not finite"
            self._widths.note(name, entry.elements, bits, least, entry.kept_bytes)
        packed = 0 if entry.waiting is not None else entry.kept_bytes - before
        get = entry.positive if form == "positive" else entry.values
        if base is None:
            slot.replace(get, _kept.strides_of(tensor.shape), 0)
        else:
            slot.replace(get, tensor.stride(), tensor.storage_offset() - flat.storage_offset())
            self._note_packed(flat, slot, entry, packed, name)
        self._count(tensor, packed, "")
        if 0 < self._half < self.memory.saved:
            self._half = 0
            slot.gives_back = True
        return ""

    def _end_wait(self, entry: Entry) -> None:
        if entry.waiting is None:
            return
        key = self._place(entry.waiting)
        entry.settle()
        path = self._path[-1] if self._path else ""
        self.memory.add(path, 0, entry.kept_bytes, 0, "")
        for one in self._packed.get(key, ()):
            if one.codes() is entry:
                one.counted.append((path, entry.kept_bytes))

    def _places(self, indices: torch.Tensor, args: Any, kwargs: Any) -> Any:
        shape = kwargs["shape"]
        if indices.dim() < 3 or not indices.is_contiguous() or len(shape) != indices.dim():
            return None

        def pair(number: int, name: str, default: Any) -> Tuple[int, int]:
            value = args[number] if number < len(args) else kwargs.get(name, default)
            if value is None or value == []:
                value = default
            value = [value] if isinstance(value, int) else list(value)
            return (value[0], value[0]) if len(value) == 1 else (value[0], value[1])

        if len(args[1]) == 3:
            return None
        kernel = pair(1, "kernel_size", 1)
        return _kept.keep(
            _frugal.keep_windows,
            indices.reshape(-1),
            (shape[-2], shape[-1]),
            (indices.shape[-2], indices.shape[-1]),
            kernel,
            pair(2, "stride", list(kernel)),
            pair(3, "padding", 0),
            pair(4, "dilation", 1),
        )


def _cuda_generators() -> Any:
    """The states of the generators of all GPUs; None: this process uses no GPU."""
    return torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else None


def _set_cuda_generators(states: Any) -> None:
    if states is not None:
        torch.cuda.set_rng_state_all(states)


def _as_bytes(flat: torch.Tensor) -> torch.Tensor:
    """PyTorch 1.13 does not hand booleans to other libraries."""
    return flat.view(torch.uint8) if flat.dtype == torch.bool else flat


def _why_whole_on_device(tensor: torch.Tensor) -> str:
    """Why a tensor that is not on the CPU cannot be packed; empty: it can."""
    kind = tensor.device.type
    if kind != "cuda" or not _frugal.has_cuda:
        return f"on {kind}, for which this build of Frugal has no kernels"
    if tensor.dtype == torch.float64:
        return "f64 on cuda"
    # A captured step would draw the same numbers each time that it is run again.
    return "in a captured CUDA graph" if torch.cuda.is_current_stream_capturing() else ""


def _unpack(slot: Slot) -> torch.Tensor:
    # Backward passes have gradients of their own only with create_graph=True.
    again = torch.is_grad_enabled() and (_graph_task is None or _in_backward())
    if again and slot.once and slot.tensor is None:
        raise RuntimeError(
            f"[compress] expected a backward pass without create_graph=True, because {slot.once} in "
            f"{slot.path or 'the model'} is packed in a form that has the first derivative alone; run the "
            "forward pass of second derivatives outside of the context, or with bits=0"
        )
    return slot.unpack()


_graph_task = getattr(torch._C, "_current_graph_task_id", None)


def _in_backward() -> bool:
    return _graph_task is not None and _graph_task() != -1
