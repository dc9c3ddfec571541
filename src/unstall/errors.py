"""The exception tree.

UnstallError                 the user's mistake or bad input: a sentence, and the exit code to leave with
├── UsageError      (2)      an option or argument that makes no sense
├── TraceError      (3)      an input that cannot be read, with the file and the place in it
└── GraphedError    (1)      what `graphed(…, strict=True)` cannot serve by a graph
"""


class UnstallError(Exception):
    """Base of all errors meant for the user: the message is a sentence that says what to do next."""

    exit_code = 1


class UsageError(UnstallError):
    """The command or the call was given something that it cannot work with."""

    exit_code = 2


class TraceError(UnstallError):
    """A trace, a saved timeline or a saved result that cannot be read."""

    exit_code = 3


class GraphedError(UnstallError):
    """What was to be graphed cannot be, and `strict=True` asked to be told so."""
