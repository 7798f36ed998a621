"""The exceptions of the package. Their messages are those of the program."""


class Error(RuntimeError):
    """What the library refuses or cannot do. All other classes but Interrupted are of this kind."""


class ConfigError(Error, ValueError):
    """A mistake in a configuration or in an argument.

    `path` says where in the configuration it is, such as "optim.momentum"; it is empty where no
    single key is at fault.
    """

    path = ""


class OutOfMemory(Error, MemoryError):
    """The limit, or the memory of the machine, is used up."""


class NotFinite(Error, ArithmeticError):
    """A loss or a gradient became infinite or no number."""


class InternalError(Error):
    """A mistake in Frugal itself."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, or another signal, ended a run. A run with a folder has written a checkpoint.

    `signal` is the number of the signal.
    """

    signal = 2
