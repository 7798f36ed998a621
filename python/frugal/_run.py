"""Runs: training, plans, evaluations, and what a run folder holds."""

import contextlib
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

from frugal import _frugal
from frugal._arguments import said
from frugal._errors import ConfigError, Error
from frugal._tensor import refuse_masked, tensor

Config = Union[str, "os.PathLike[str]", Mapping[str, Any]]
PathName = Union[str, "os.PathLike[str]"]
Callback = Callable[[Dict[str, Any]], Any]


def _plain(value: Any) -> Any:
    """What JSON writes of a value that is not its own: paths, and numbers and arrays of NumPy."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(
        "[config] expected numbers, texts, lists, dicts, paths or arrays as values, got "
        f"{type(value).__name__} {value!r}"
    )


@contextlib.contextmanager
def _file_of(config: Config) -> Iterator[str]:
    """The file of a configuration; a mapping is written to one."""
    if not isinstance(config, (Mapping, str, os.PathLike)):
        raise TypeError(
            f"[config] expected the name of a file or a dict, got {type(config).__name__}"
        )
    if not isinstance(config, Mapping):
        yield os.path.expanduser(os.fspath(config))
        return
    with tempfile.TemporaryDirectory(prefix="frugal-") as folder:
        file = os.path.join(folder, "config.json")
        with open(file, "w", encoding="utf-8") as to:
            json.dump(config, to, default=_plain)
        yield file


def _path(function: str, argument: str, value: Optional[PathName]) -> str:
    """The name of a file or a folder; None is no name."""
    if value is None and argument not in ("run", "each run", "each input", "folder", "weights"):
        return ""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(
            f"[{function}] expected {argument} to be the name of a file or a folder, got {said(value)}"
        )
    name = os.fspath(value)
    # What is predicted may be a text, which means what it says.
    return name if argument in ("inputs", "each input") else os.path.expanduser(name)


def _check_name(function: str, argument: str, value: Any, names: Sequence[str]) -> None:
    """A text that is none of the names is a mistake; what is no text, the module refuses."""
    if isinstance(value, str) and value not in names:
        raise ConfigError(f"[{function}] expected {argument} to be one of {', '.join(names)}; got {said(value)}")


def _sets(overrides: Optional[Mapping[str, Any]]) -> List[str]:
    if overrides is not None and not isinstance(overrides, Mapping):
        raise TypeError(
            '[config] expected set to be a dict such as {"train.epochs": 3}, got '
            f"{type(overrides).__name__}"
        )
    return [f"{key}={json.dumps(value, default=_plain)}" for key, value in (overrides or {}).items()]


def _functions(callbacks: Iterable[Any], name: str) -> List[Callback]:
    """The functions for one kind of report. A plain function gets the reports of epochs."""
    found = []
    if callable(callbacks) or not isinstance(callbacks, Iterable):
        raise TypeError(
            f"[train] expected a list of callbacks, got {type(callbacks).__name__}; one stands in a list, too"
        )
    for callback in callbacks:
        method = getattr(callback, name, None)
        if method is not None and callable(method):
            found.append(method)
        elif not callable(callback) and not any(
            callable(getattr(callback, one, None)) for one in ("on_step", "on_epoch")
        ):
            raise TypeError(
                "[train] expected callbacks that are functions or have on_step or on_epoch, got "
                f"{type(callback).__name__}"
            )
        elif callable(callback) and not hasattr(callback, "on_step") and name == "on_epoch":
            found.append(callback)
    return found


def _answer(value: Any) -> Any:
    return bool(value) if type(value).__module__ == "numpy" and "bool" in type(value).__name__ else value


def _joined(functions: List[Callback]) -> Optional[Callback]:
    if not functions:
        return None

    def call(report: Dict[str, Any]) -> bool:
        # False of NumPy, as of a comparison of its numbers, is another object than Python's.
        goes_on = [_answer(function(report)) is not False for function in functions]
        return all(goes_on)

    return call


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    get = getattr(shell, "get_ipython", None)
    return get is not None and type(get()).__name__ == "ZMQInteractiveShell"


class _NotebookLine:
    """The progress of a run in a notebook, which does not show what C++ prints."""

    def on_epoch(self, report: Dict[str, Any]) -> None:
        text = f"epoch {report['epoch']}  train loss {report['train_loss']:.4f}"
        test = report.get("test")
        if test is not None:
            text += f"  test loss {test['loss']:.4f}  acc {100 * test['accuracy']:.2f}%"
        print(text, flush=True)


def train(
    config: Config,
    out: Optional[PathName] = None,
    callbacks: Sequence[Any] = (),
    *,
    set: Optional[Mapping[str, Any]] = None,  # noqa: A002: the name of the option
    resume: bool = False,
    extend: int = 0,
    init_from: Optional[PathName] = None,
    overwrite: bool = False,
    data_changed: bool = False,
    quiet: bool = False,
) -> "Run":
    """Trains as `frugal train` does, and gives the run.

    config: the name of a file, or a dict of the same structure.
    out: the folder of the run. Without one nothing is written.
    callbacks: functions that get the report of each epoch as a dict, or objects with `on_epoch`,
        `on_step` or both. One that returns False ends the run after a checkpoint.
    set: other values for keys, such as {"train.epochs": 3}.
    resume: goes on with the run in `out`. Where `out` holds none, a new one begins.
    The other arguments are the options of the command line.

    Ctrl-C ends the run at the next step, after a checkpoint, and raises Interrupted. A second
    Ctrl-C ends the process at once. Other threads run on while this one trains.
    """
    if isinstance(extend, int) and extend < 0:
        raise ConfigError(f"[train] expected extend of at least 0 more epochs, got {extend}")
    if not callable(callbacks) and isinstance(callbacks, Iterable):
        callbacks = list(callbacks)  # a generator can be walked once, and they are asked for steps and for epochs
    if _in_notebook() and not quiet:
        quiet = True
        callbacks = [*callbacks, _NotebookLine()]
    folder = _path("train", "out", out)
    if folder:
        folder = os.path.abspath(folder)  # a callback may change the working directory
    with _file_of(config) as file:
        text = _frugal.train(
            config=file,
            out=folder,
            sets=_sets(set),
            resume=resume,
            extend=extend,
            init_from=_path("train", "init_from", init_from),
            overwrite=overwrite,
            data_changed=data_changed,
            quiet=quiet,
            on_step=_joined(_functions(callbacks, "on_step")),
            on_epoch=_joined(_functions(callbacks, "on_epoch")),
        )
    return Run(folder or None, json.loads(text) if text else None)


def _size(memory: Union[str, int, None]) -> str:
    if memory is None:
        return ""
    if isinstance(memory, float) and memory.is_integer():
        memory = int(memory)
    is_number = isinstance(memory, int) and not isinstance(memory, bool)
    return str(memory) if is_number else memory  # what is no text is an error of the module


def plan(
    config: Config,
    *,
    set: Optional[Mapping[str, Any]] = None,  # noqa: A002
    memory: Union[str, int, None] = None,
    largest: Optional[str] = None,
    explain: bool = False,
) -> Dict[str, Any]:
    """What a step takes with each way to keep activations, as `frugal plan --json` says it.

    memory: what a step may take, a number of bytes or a text such as "2 GiB".
    largest: "batch", "layers", "width" or "resolution": the largest value that fits into `memory`.
    explain: which tensors take most.
    """
    _check_name("plan", "largest", largest, ("batch", "layers", "width", "resolution"))
    if largest is not None and memory is None:
        raise ConfigError(f"[plan] expected memory, which the largest {largest} has to fit into, got none")
    with _file_of(config) as file:
        return json.loads(
            _frugal.plan(
                config=file,
                sets=_sets(set),
                memory=_size(memory),
                largest="" if largest is None else largest,
                explain=explain,
            )
        )


def evaluate(
    run: Config,
    *,
    checkpoint: Optional[PathName] = None,
    weights: PathName = "last",
    split: str = "test",
    data: Optional[PathName] = None,
    tta: str = "none",
    set: Optional[Mapping[str, Any]] = None,  # noqa: A002
) -> Dict[str, Any]:
    """Loss, accuracy and metric of a run's weights, as `frugal eval --json` says them.

    run: the folder of a run, or a configuration whose weights are in the file `checkpoint`.
    data: for a language model, a file of texts or of questions with choices as JSON lines.
    """
    _check_name("evaluate", "split", split, ("test", "val"))
    _check_name("evaluate", "tta", tta, ("none", "flip", "ten_crop"))
    with _file_of(run) as file:
        return json.loads(
            _frugal.evaluate(
                config=file,
                checkpoint=_path("evaluate", "checkpoint", checkpoint),
                weights=_path("evaluate", "weights", weights),
                split=split,
                data=_path("evaluate", "data", data),
                tta=tta,
                sets=_sets(set),
            )
        )


def report(*runs: PathName, out: Optional[PathName] = None) -> str:
    """Writes the page about a run, or about several beside each other, and gives its file."""
    return _frugal.write_report(
        folders=[_path("report", "each run", run) for run in runs], out=_path("report", "out", out)
    )


def load(run: PathName, *, weights: PathName = "best", device: str = "") -> "Model":
    """The network of a run folder, with what turns its inputs into batches.

    weights: "best", "last" or a safetensors file. device: empty for that of the run.
    """
    return Model(_frugal.load(_path("load", "run", run), _path("load", "weights", weights), device))


class Model:
    """A trained network that predicts."""

    def __init__(self, model: Any) -> None:
        self._model = model

    @property
    def classes(self) -> List[str]:
        """The names of the classes in the order of the outputs; empty where they have none."""
        return self._model.classes

    @property
    def sample_shape(self) -> tuple:
        """The shape of one sample: [height, width, channels], [features] or [tokens]."""
        return self._model.sample_shape

    def predict(self, inputs: Any, *, top: int = 5, batch_size: int = 64) -> Any:
        """What the network says of samples.

        inputs: an array of samples, one behind the other: pictures [N, H, W, C] f32 in [0, 1] of
        the network's size, rows [N, F] f32 (of a table of numbers, as its file has them), or token
        ids [N, T] i64. Or the name of a picture file, of a CSV file (an answer for each row), a
        text where the network reads text, or a list of them.

        A network of classes gives a list for each sample: (number, name, probability), the
        likeliest class first. A network that predicts numbers gives these.
        """
        if isinstance(inputs, (str, os.PathLike)):
            if self._model.reads_table:
                return self._model.predict_table(_path("predict", "inputs", inputs), top, batch_size)
            return self._model.predict_each([self._name("inputs", inputs)], top, batch_size)[0]
        if isinstance(inputs, (list, tuple)) and inputs and isinstance(inputs[0], (str, os.PathLike)):
            if self._model.reads_table:
                files = [_path("predict", "each input", one) for one in inputs]
                return [each for file in files for each in self._model.predict_table(file, top, batch_size)]
            return self._model.predict_each([self._name("each input", one) for one in inputs], top, batch_size)
        return self._model.predict_arrays(tensor(inputs), top, batch_size)

    def _name(self, what: str, given: PathName) -> str:
        name = _path("predict", what, given)
        if self._model.reads_text and (not isinstance(given, str) or _LOOKS_LIKE_A_FILE.search(name)) and os.path.isfile(name):
            raise ValueError(
                f"[predict] expected {what} to be text, got the name of a file, {name!r}; "
                f"pass the file's texts, or run `frugal predict RUN {name}`"
            )
        return name

    def probabilities(self, inputs: Any, *, batch_size: int = 64) -> Any:
        """The probabilities of all classes for an array of samples, as an array [N, classes]."""
        import numpy

        answers = self._model.predict_arrays(tensor(inputs), 2**31 - 1, batch_size)
        outputs = len(answers[0]) if answers else self._model.class_count
        result = numpy.zeros((len(answers), outputs), numpy.float64)
        for row, guesses in zip(result, answers):
            for index, _, probability in guesses:
                row[index] = probability
        return result

    def weights(self) -> Dict[str, Any]:
        """The parameters by name, as tensors that share the network's memory."""
        return self._model.weights()


class Run:
    """A run: its folder, and what the folder holds."""

    def __init__(self, folder: Optional[PathName], summary: Optional[Dict[str, Any]] = None) -> None:
        self.folder = None if folder is None else Path(os.path.abspath(_path("run", "folder", folder)))
        self._summary = summary

    def __repr__(self) -> str:
        return f"<frugal.Run {self.folder}>"

    def _file(self, name: str) -> Path:
        if self.folder is None:
            what = "weights or report" if name == "." else name
            raise ValueError(f"[run] a run without a folder has no {what}; train() with `out` gives it one")
        return self.folder / name

    @property
    def finished(self) -> bool:
        """Has the run come to its end?"""
        if self._summary is not None:
            return True
        return self.folder is not None and (self.folder / "summary.json").exists()

    def _read(self, name: str) -> str:
        file = self._file(name)
        try:
            return file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise Error(f"[run] expected text in {file}: {error}") from None
        except FileNotFoundError:
            raise FileNotFoundError(
                f"[run] expected {name} in {self.folder}, which "
                + (
                    "has none: " + ("the run has not ended" if name == "summary.json" else "it is no folder of a run")
                    if file.parent.is_dir()
                    else "is no folder"
                )
            ) from None

    def _json(self, name: str) -> Dict[str, Any]:
        try:
            return json.loads(self._read(name))
        except json.JSONDecodeError as error:
            raise Error(f"[run] expected JSON in {self._file(name)}, which may be cut: {error}") from None

    @property
    def summary(self) -> Dict[str, Any]:
        """What summary.json says. A run that has not ended has none."""
        if self._summary is None:
            self._summary = self._json("summary.json")
        return self._summary

    @property
    def config(self) -> Dict[str, Any]:
        """The configuration, with all defaults."""
        return self._json("config.json")

    def lines(self, kind: str) -> List[Dict[str, Any]]:
        """The lines of metrics.jsonl of one kind: "step", "epoch", "convergence" and others.

        A last line that is not written to its end, as of a run that goes on, does not count.
        """
        return [line for line in self._all_lines() if line.get("type") == kind]

    def _all_lines(self) -> List[Dict[str, Any]]:
        text = self._read("metrics.jsonl")
        found = []
        for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), 1):
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise Error(
                    f"[run] expected JSON in line {number} of {self._file('metrics.jsonl')}: {error}"
                ) from None
        return found

    def metrics(self, kind: str = "epoch") -> Any:
        """The numbers of these lines as a structured array, with a field for each name.

        Errors: ConfigError if the run has no such lines, but for "epoch" and "step".
        """
        import numpy

        lines = self.lines(kind)
        if not lines:
            kinds = sorted({line.get("type", "") for line in self._all_lines()} | {"epoch", "step"})
            _check_name("run", "the kind of lines", kind, kinds)
        names: List[str] = []
        for line in lines:
            for name, value in line.items():
                if isinstance(value, (int, float)) and name not in names:
                    names.append(name)
        whole = ("epoch", "step")
        array = numpy.full(
            len(lines), 0, [(name, "i8" if name in whole else "f8") for name in names]
        )
        for name in names:
            missing = 0 if name in whole else float("nan")
            array[name] = [line.get(name, missing) for line in lines]
        return array

    def plot(self, *names: str, kind: str = "epoch", axes: Any = None) -> Any:
        """Draws columns of metrics() over the steps, with matplotlib; gives the axes.

        Errors: as metrics(); ConfigError for a name that these lines do not have.
        """
        import matplotlib.pyplot

        table = self.metrics(kind)
        columns = table.dtype.names or ()
        for name in names if columns else ():
            _check_name("run", "a column", name, columns)
        if axes is None:
            axes = matplotlib.pyplot.gca()
        for name in names or ("train_loss", "test_loss"):
            if name in columns:
                axes.plot(table["step"], table[name], label=name)
        axes.set_xlabel("step")
        axes.legend()
        return axes

    def load(self, *, weights: PathName = "best", device: str = "") -> Model:
        """See frugal.load()."""
        return load(self._file("."), weights=weights, device=device)

    def evaluate(self, **options: Any) -> Dict[str, Any]:
        """See frugal.evaluate()."""
        return evaluate(self._file("."), **options)

    def report(self, out: Optional[PathName] = None) -> str:
        """See frugal.report()."""
        return report(self._file("."), out=out)


def save_arrays(folder: PathName, **arrays: Any) -> str:
    """Writes arrays where `data.name` "tensors" reads them, and gives the folder.

    Each argument is a split and takes a pair (inputs, targets): train=(x, y), val=..., test=....
    Or it takes an iterator of such pairs, as a generator of batches: they follow one another. A
    list of tuples of two arrays is one, too. Nothing is written where an argument is wrong. Files
    of other splits that the folder has stay.
    """
    import numpy

    folder = _path("save_arrays", "folder", folder)
    for split in arrays:
        if split not in ("train", "val", "test"):
            raise ValueError(f"[save_arrays] expected train, val or test, got {split}")
    os.makedirs(folder, exist_ok=True)
    ready = {split: _joined_pair(split, given) for split, given in arrays.items()}
    for split, (inputs, targets) in ready.items():
        numpy.savez(os.path.join(folder, f"{split}.npz"), input=inputs, target=targets)
    return folder


def _is_pair_of_arrays(value: Any) -> bool:
    return (
        isinstance(value, (tuple, list))
        and len(value) == 2
        and all(len(getattr(one, "shape", ())) > 0 for one in value)
    )


def _joined_pair(split: str, given: Any) -> Any:
    """Inputs and targets of a part, which is a pair of them or an iterator of pairs."""
    import numpy

    if isinstance(given, (tuple, list)):
        are_pairs = len(given) > 0 and all(_is_pair_of_arrays(one) for one in given)
        if not are_pairs:
            return _pair(split, given)
        if not isinstance(given, list) or not all(isinstance(one, tuple) for one in given):
            if len(given) == 2:
                raise ValueError(
                    f"[save_arrays] expected {split} to be (inputs, targets) or an iterator of such pairs, "
                    "got two pairs of arrays, which may be either; an array of inputs and one of targets "
                    "are a pair, and a list of tuples is batches"
                )
    elif not isinstance(given, Iterable):
        raise TypeError(
            f"[save_arrays] expected {split} to be (inputs, targets) or an iterator of such pairs, "
            f"got {said(given)}"
        )
    batches = [_pair(split, batch) for batch in given]
    if not batches:
        raise ValueError(f"[save_arrays] expected batches for {split}, got none")
    for what, parts in zip(("inputs", "targets"), zip(*batches)):
        of_bytes = {part.dtype == numpy.uint8 for part in parts}
        if len(of_bytes) > 1:  # bytes of pictures become 0 to 1, and other numbers stay
            other = next(part.dtype for part in parts if part.dtype != numpy.uint8)
            raise TypeError(
                f"[save_arrays] expected {what} of {split} that are all bytes or all other numbers, got "
                f"batches of uint8 and of {other}"
            )
    return [numpy.concatenate(parts) for parts in zip(*batches)]


# What the reader takes, and which of these holds all numbers of another dtype.
_LOOKS_LIKE_A_FILE = re.compile(r"\.(txt|tsv|csv|jsonl?)$", re.I)
_READ = ("f4", "f8", "i4", "i8", "u1", "b1")
_HELD_BY = {"f2": "f4", "i1": "i4", "i2": "i4", "u2": "i4", "u4": "i8"}


def _as_read(split: str, array: Any) -> Any:
    """The array in a dtype and in the byte order that the reader takes."""
    kind = array.dtype.str[1:]
    kind = _HELD_BY.get(kind, kind)
    if kind not in _READ:
        raise TypeError(
            f"[save_arrays] expected arrays of numbers in {split}, got dtype {array.dtype}; float16 to "
            "float64, int8 to int64, uint8 to uint32 and bool can be written"
        )
    return array.astype(kind, copy=False)


def _pair(split: str, pair: Any) -> Any:
    """Inputs and as many targets as arrays."""
    import numpy

    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        count = f"{len(pair)} arrays" if isinstance(pair, (tuple, list)) else said(pair)
        raise ValueError(f"[save_arrays] expected {split} to be (inputs, targets), got {count}")
    for one in pair:
        refuse_masked("save_arrays", one)
    inputs, targets = (numpy.asarray(one) for one in pair)
    inputs, targets = (_as_read(split, one) for one in (inputs, targets))
    if inputs.ndim == 0 or targets.ndim == 0 or len(inputs) != len(targets):
        raise ValueError(
            f"[save_arrays] expected as many targets as inputs in {split}, got inputs of shape "
            f"{list(inputs.shape)} and targets of shape {list(targets.shape)}"
        )
    return inputs, targets
