"""The exception tree. The numbers are the exit codes of the command line.

UnstallError        (1)      a mistake of the user, or bad input
├── UsageError      (2)      an option, argument or call that makes no sense
├── TraceError      (3)      an input that cannot be read; the message names the file and the place in it
├── KernelError     (1)      a kernel that `inspect_kernel` cannot run to its end; the message names the line
├── GraphedError    (1)      a call that `graphed(…, strict=True)` cannot serve by a graph
└── SyncError       (1)      a wait for the GPU under `no_sync()`; also a RuntimeError
"""

from typing import Any


class UnstallError(Exception):
    """The base class of all errors that users see. The message is one sentence that says what is
    wrong and what to do.

    Attributes:
        exit_code: The exit code of a command that ends with this error.
    """

    exit_code = 1


class UsageError(UnstallError):
    """Raised when a command or a function gets an option or an argument that it cannot work with."""

    exit_code = 2


class TraceError(UnstallError):
    """Raised when a trace, a saved timeline or a saved result cannot be read."""

    exit_code = 3


class KernelError(UnstallError):
    """Raised when a kernel cannot run to its end: not all threads of a block reach a barrier, or an
    index is out of bounds.
    """


class GraphedError(UnstallError):
    """Raised when a CUDA graph cannot serve a call of a function that is decorated with `graphed(strict=True)`."""


class SyncError(UnstallError, RuntimeError):
    """Raised when the CPU is about to wait for the GPU in a block under `unstall.no_sync()`.

    Attributes:
        wait: Details of the wait, as an `unstall.guarding.wait.Wait`; None if the details are
            unknown.
    """

    def __init__(self, text: str, wait: Any = None) -> None:
        super().__init__(text)
        self.wait = wait
