"""Tensors of the library, and how arrays become tensors."""

from typing import Any

from frugal import _frugal
from frugal._errors import Error
from frugal._frugal import Tensor, Variable


def refuse_masked(where: str, array: Any) -> None:
    """Raises ValueError for an array of NumPy with masked elements, which would count as they are."""
    if not any(one.__name__ == "MaskedArray" for one in type(array).__mro__):
        return
    import numpy

    masked = int(numpy.ma.getmaskarray(array).sum())
    if masked:
        raise ValueError(
            f"[{where}] expected numbers, got an array with {masked} of {array.size} elements masked; "
            "its filled() has numbers in their place"
        )


def from_dlpack(array: Any) -> Tensor:
    """A tensor over the memory of `array`, which has `__dlpack__` or is a capsule of it.

    Nothing is copied. Raises BufferError for memory that cannot be shared.
    """
    if not hasattr(array, "__dlpack__") and type(array).__name__ != "PyCapsule":
        raise TypeError(
            f"[dlpack] expected an array with __dlpack__, got {type(array).__name__}"
        )
    if hasattr(array, "__dlpack__"):
        # PyTorch negates the imaginary part of a conjugate when it is read, and hands out the
        # memory as it is.
        if hasattr(array, "is_neg") and array.is_neg():
            raise BufferError(
                "[dlpack] expected numbers as the memory has them, got a tensor of PyTorch with the "
                "negative bit; resolve_neg() makes a copy without it"
            )
        array = array.__dlpack__()
    return _frugal.shared_tensor(array)


def tensor(array: Any) -> Tensor:
    """A tensor of the numbers of `array`.

    An array that may be written is not copied: the tensor and the array share their memory. A list,
    a number, an array that is read-only or a tensor of PyTorch with the negative bit is copied.
    Raises ValueError for masked elements.
    """
    refuse_masked("tensor", array)
    if hasattr(array, "resolve_neg"):
        array = array.resolve_neg()
    try:
        return _frugal.shared_tensor(array)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, Error):
            raise
        import numpy

        copy = numpy.array(array, order="C")
        if copy.dtype.byteorder not in "=|":
            copy = copy.astype(copy.dtype.newbyteorder("="))
        try:
            return _frugal.shared_tensor(copy)
        except (BufferError, ValueError) as error:
            raise BufferError(
                f"{error}; {type(array).__name__} is an array of {copy.dtype} for NumPy"
            ) from None


def _array(self: Tensor, dtype: Any = None, copy: Any = None) -> Any:
    """The numbers as an array of NumPy, which shares the memory unless it has another dtype."""
    import numpy

    array = numpy.asarray(memoryview(self))
    if dtype is not None and array.dtype != dtype:
        return array.astype(dtype)
    return array.copy() if copy else array


def _numpy(self: Tensor) -> Any:
    """The numbers as an array of NumPy, which shares the memory."""
    return _array(self)


_numpy.__name__ = "numpy"
Tensor.__array__ = _array  # type: ignore[method-assign]
Tensor.numpy = _numpy  # type: ignore[attr-defined]
Variable.__array__ = lambda self, dtype=None, copy=None: _array(self.value, dtype, copy)  # type: ignore[attr-defined]
