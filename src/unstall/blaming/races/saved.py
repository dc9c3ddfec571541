"""Saves the races of a program to a file each time a new race is found. Also reads such a file."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from unstall.blaming.result import Race
from unstall.decoding import from_json
from unstall.errors import UnstallError
from unstall.guest.imports import when_imported

FILE = "races.json"


class RacesSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The races that were found in a program, in the form in which they are saved to a file.

    Attributes:
        races: The races.
        missing: Why some or all races may be missing; "" if there is no such reason.
    """

    races: tuple[Race, ...] = ()
    missing: str = ""


def keep_races(folder: Path) -> Callable[[], None]:
    """Starts to look for races when torch is imported. Saves the races that are found to a file in
    `folder`.

    Returns a function that ends the search. Counts in the file are final only when the search or
    the process has ended.
    """
    process = os.getpid()
    ends: list[Callable[[], None]] = []

    def write(seen: RacesSeen) -> None:
        if os.getpid() == process:
            with suppress(OSError):
                partial = folder / f"{FILE}.partial"
                partial.write_bytes(msgspec.json.encode(seen))
                partial.replace(folder / FILE)

    def begin() -> None:
        from unstall.blaming.races.watch import RaceWatch

        def save() -> None:
            write(RacesSeen(races=watch.noted.races(), missing=watch.failed))

        def end() -> None:
            atexit.unregister(save)
            watch.stop()
            save()

        try:
            watch = RaceWatch(lambda: save())
        except UnstallError as error:
            write(RacesSeen(missing=str(error)))
        except Exception as error:  # never the program's
            write(RacesSeen(missing=f"{type(error).__name__}: {error}"))
        else:
            ends.append(end)
            atexit.register(save)
            save()

    ends.append(when_imported("torch", begin))

    def stop() -> None:
        while ends:
            ends.pop()()

    return stop


def read_races(folder: Path) -> RacesSeen:
    """Reads the races that a program has saved to a file in `folder`."""
    try:
        return from_json((folder / FILE).read_bytes(), RacesSeen)
    except (OSError, msgspec.DecodeError):
        return RacesSeen(missing="the program did not import torch")
