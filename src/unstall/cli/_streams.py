"""Standard streams that any report can be written to: closed ones, and those that lack some of its characters."""

from __future__ import annotations

import codecs
import os
import sys
from pathlib import Path

# What reports draw with and what they write, each by one character of ASCII.
_STAND_INS = dict(zip("█▓▒▚░·…→µ—", "#&>@x-~>u-", strict=True))


def prepare() -> None:
    """What a stream's encoding lacks is shown by a stand-in of the same width; a stream that is closed takes all."""
    codecs.register_error("unstall.stand-in", _stand_in)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - for as long as we run
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="unstall.stand-in")


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_STAND_INS.get(character, "?") for character in missing), error.end
