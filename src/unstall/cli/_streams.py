"""Makes it safe to print: replaces closed standard streams, and characters that the encoding of a
stream does not have.
"""

from __future__ import annotations

import codecs
import os
import sys
from pathlib import Path

# The non-ASCII characters of reports, and one ASCII character for each.
_STAND_INS = dict(zip("█▓▒▚░·…→µ—▁▂▃▄▅▆▇▲┤│└┴─≥∞", "#&>@x-~>u-__==###^|||+->8", strict=True))


def prepare() -> None:
    """Makes it safe to print to stdout and stderr.

    If the encoding of a stream does not have a character, another character of the same width is
    printed instead. A closed stream is replaced by the null device.
    """
    codecs.register_error("unstall.stand-in", _stand_in)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - for as long as we run
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="unstall.stand-in")


def let_go_of_stdout() -> None:
    """Redirects stdout to the null device. Python flushes stdout again at exit, and this flush must not fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_STAND_INS.get(character, "?") for character in missing), error.end
