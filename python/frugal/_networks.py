"""What a training loop of one's own is made of: networks, losses, optimizers, policies, ops."""

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

from frugal import _frugal
from frugal._arguments import said
from frugal._frugal import Variable, no_grad
from frugal._tensor import Tensor, tensor

__all__ = [
    "Network",
    "Variable",
    "binary_cross_entropy",
    "cross_entropy",
    "memory",
    "mse_loss",
    "network",
    "networks",
    "no_grad",
    "op",
    "optimizer",
    "optimizers",
    "policy",
    "sequential",
    "variable",
]

_Numbers = Union[Variable, Any]


def _variable(x: Any) -> Variable:
    return x if isinstance(x, Variable) else Variable(tensor(x))


def variable(array: Any, requires_grad: bool = False) -> Variable:
    """A variable over the numbers of an array, as tensor() takes it."""
    return Variable(tensor(array), requires_grad)


class Network:
    """A network: call it with a batch."""

    def __init__(self, network: Any) -> None:
        self._network = network

    def __call__(self, x: _Numbers, *, training: bool = True, **extras: Any) -> Variable:
        """The outputs for a batch: pictures [N, H, W, C] f32, rows [N, F] f32, or ids [N, T] i64.

        extras: other arrays of the batch by name, such as attention_mask or edge_index. One that
            the network does not read is a TypeError, which lists those that it reads.
        """
        known = self._network.extras
        for name in extras:
            if name not in known:
                raise TypeError(
                    "[network] expected arrays that this network reads beside its input "
                    f"({', '.join(known) or 'none'}), got {name}"
                )
        return self._network.forward(
            _variable(x), training, {name: tensor(value) for name, value in extras.items()}
        )

    def parameters(self) -> Dict[str, Variable]:
        """The parameters by name."""
        return self._network.parameters()

    def buffers(self) -> Dict[str, Tensor]:
        """What is no parameter and lasts, by name: the statistics of norms."""
        return self._network.buffers()

    def weights(self) -> Dict[str, Tensor]:
        """The values of the parameters, as tensors that share the network's memory."""
        return {name: one.value for name, one in self.parameters().items()}

    def zero_grad(self) -> None:
        """Forgets the gradients of the parameters."""
        self._network.zero_grad()


def networks() -> List[str]:
    """The names of the networks."""
    return _frugal.networks()


def network(name: str, *, seed: int = 0, **options: Any) -> Network:
    """A new network of the zoo, such as network("resnet20", num_classes=10).

    Its options are the keys of the section `model` of configurations.
    """
    return Network(_frugal.make_network(name, options, seed))


def sequential(layers: Sequence[Any], *, sample: Sequence[int], outputs: int, seed: int = 0) -> Network:
    """A network that is a list of layers, written as `model.modules` of configurations:
    ["flatten", {"linear": 64}, "relu", {"linear": 10}].

    sample: the shape of one sample. outputs: how many numbers the last layer gives.
    """
    for argument, value in (("layers", layers), ("sample", sample)):
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"[sequential] expected {argument} to be a list, got {said(value)}")
    return Network(
        _frugal.make_network(
            "sequential",
            {"modules": list(layers), "sample": list(sample), "num_classes": outputs},
            seed,
        )
    )


def optimizers() -> List[str]:
    """The names of the optimizers."""
    return _frugal.optimizers()


def optimizer(
    name: str,
    parameters: Union[Network, Mapping[str, Variable]],
    *,
    weight_decay: float = 0.0,
    no_decay_norms: bool = True,
    **options: Any,
) -> Any:
    """An optimizer, such as optimizer("sgd", network, momentum=0.9): step(lr) and zero_grad().

    weight_decay: as `optim.weight_decay` of configurations, but nothing decays unless it is given.
    no_decay_norms: biases and the norms' parameters, which have one axis, do not decay.
    options: the optimizer's own, such as momentum and beta2, by their keys in the section `optim`.
    Optimizers with 8 bits keep the state of embeddings in full: of variables with "embed", "wte." or "wpe." in
    their names.
    """
    if isinstance(parameters, Network):
        parameters = parameters.parameters()
    if not isinstance(parameters, Mapping):
        raise TypeError(
            f"[optimizer] expected parameters to be a network or a dict of variables, got {said(parameters)}"
        )
    return _frugal.make_optimizer(name, dict(parameters), options, weight_decay, no_decay_norms)


def policy(bits: int = 4, *, min_elements: Optional[int] = None, seed: int = 0) -> Any:
    """How activations are kept in a block: `with frugal.policy(bits=4): loss = ...`.

    bits: of each value that is packed, from 0 (everything is kept raw) to 16.
    min_elements: smaller tensors stay raw.

    Enter one policy once in each step: each time it draws other random numbers. The backward pass
    may come inside of the block or after it.
    """
    if isinstance(min_elements, int) and min_elements < 0:
        raise ValueError(f"[policy] expected min_elements of at least 0, got {min_elements}")
    return _frugal.Policy(bits, min_elements, seed)


def cross_entropy(logits: Variable, target: Any, *, label_smoothing: float = 0.0) -> Variable:
    """The mean cross-entropy of logits [..., C] with classes [...] i64; -100 does not count."""
    return _frugal.cross_entropy(logits, tensor(target), label_smoothing)


def binary_cross_entropy(logits: Variable, target: Any) -> Variable:
    """The mean over the elements, with answers from 0 to 1."""
    return _frugal.binary_cross_entropy(logits, tensor(target))


def mse_loss(x: Variable, target: _Numbers) -> Variable:
    """The mean squared difference."""
    return _frugal.mse_loss(x, _variable(target))


def op(
    name: str,
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    *,
    keeps: str = "inputs",
    linear: bool = False,
) -> Callable[..., Variable]:
    """An op of one's own: a function of variables that joins the graph.

        square = frugal.op("square", lambda x: x * x, lambda dy, x: 2 * dy * x, linear=True)

    forward: gets the inputs as arrays, which cannot be written, and gives the output as a new array.
    backward: gets the gradient of the output and what the op keeps, as arrays, and gives the
        gradient of each input: one array, or a tuple where there are several inputs, with None for
        those that have no gradient.
    keeps: "inputs", "output" or "nothing".
    linear: is the gradient linear in what is kept? Then a policy may round that. Without it, what
        is kept stays exact, since a gradient that is not linear would have a bias.
    """
    if keeps not in ("inputs", "output", "nothing"):
        raise ValueError(f'[op] expected keeps to be "inputs", "output" or "nothing", got "{keeps}"')
    for argument, function in (("forward", forward), ("backward", backward)):
        if not callable(function):
            raise TypeError(f"[op] expected {argument} to be a function, got {said(function)}")

    def arrays(function: Callable[..., Any], argument: str) -> Callable[..., Any]:
        def call(*tensors: Tensor) -> Any:
            found = function(*(_read_only(one) for one in tensors))
            if found is None:
                raise TypeError(f"[op] {name}: expected {argument} to give an array, got None")
            if isinstance(found, tuple):
                return tuple(None if one is None else _fresh(one, tensors) for one in found)
            return _fresh(found, tensors)

        return call

    ahead, back = arrays(forward, "forward"), arrays(backward, "backward")

    def run(*inputs: _Numbers) -> Variable:
        return _frugal.run_op(name, ahead, back, [_variable(x) for x in inputs], keeps, linear)

    return run


def _read_only(one: Tensor) -> Any:
    """The memory of a tensor, which others read after the function: what it keeps, other ops."""
    import numpy

    array = numpy.asarray(one).view()
    array.flags.writeable = False
    return array


def _fresh(array: Any, inputs: Sequence[Tensor]) -> Tensor:
    """A tensor of a result: its memory is no input's, and it lies without gaps."""
    import numpy

    array = numpy.asarray(array)
    if not array.flags.c_contiguous or any(
        numpy.may_share_memory(array, numpy.asarray(one)) for one in inputs
    ):
        array = numpy.array(array, order="C")
    return tensor(array)


def memory() -> Dict[str, int]:
    """The bytes that tensors of the library take now, by what they are for."""
    return _frugal.memory_bytes()
