"""Code that runs in the process of a program that `unstall numbers` started. It records the program's numbers."""

from __future__ import annotations

import atexit
import os
import random
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from unstall.decoding import from_json
from unstall.guest.imports import when_imported

SEED = 20
_PATIENCE_S = 10.0  # until a program that was ended has ended


class Settings(msgspec.Struct, frozen=True):
    """How `unstall numbers` runs a program, and what it records of it.

    Attributes:
        path: The file to which the numbers are written.
        program: The program's name.
        most: The largest number of operators to record. After these operators, the program is
            ended.
        errors: The seed of the random errors that are added to each operator's result. If None, no
            errors are added.
        float64: Whether float64 is the default type.
        deterministic: Whether torch is to use deterministic kernels only.
    """

    path: str
    program: str
    most: int
    errors: int | None = None
    float64: bool = False
    deterministic: bool = False


def arm(settings: str | None) -> None:
    """Makes this process record its numbers, from the moment when it imports torch. `settings` is a
    `Settings` as JSON.
    """
    wanted = from_json(settings or "", Settings)
    random.seed(SEED)
    when_imported("numpy", lambda: sys.modules["numpy"].random.seed(SEED))
    when_imported("torch", lambda: _start(wanted))


def _start(wanted: Settings) -> None:
    import torch

    from unstall.numbers.recording import Recorder, record_process
    from unstall.rounding.noise import Noise, drawn_in_float32

    torch.manual_seed(SEED)
    if wanted.float64:
        torch.set_default_dtype(torch.float64)
    if wanted.deterministic:
        torch.use_deterministic_algorithms(True)
    call = Noise(wanted.errors).call if wanted.errors is not None else drawn_in_float32 if wanted.float64 else None
    recorder = Recorder(Path(wanted.path), most=wanted.most, call=call, program=wanted.program, when_full=_end)
    watching = ExitStack()
    watching.enter_context(recorder.watch)
    record_process(recorder)
    failed = False

    def see_failure(*raised: object) -> None:
        nonlocal failed
        failed = True
        hook(*raised)  # type: ignore[arg-type]

    def close() -> None:
        watching.close()
        recorder.close(complete=not failed)

    hook, sys.excepthook = sys.excepthook, see_failure
    atexit.register(close)


def _end() -> None:
    """Ends the program by SystemExit. If other threads keep the process alive for another 10 s,
    ends it by `os._exit`.

    Does nothing if it is called in a background thread or in a backward pass.
    """
    import torch

    torch_c: Any = torch._C
    in_backward = torch_c._current_autograd_node() is not None
    if threading.current_thread() is threading.main_thread() and not in_backward:
        timer = threading.Timer(_PATIENCE_S, os._exit, (0,))
        timer.daemon = True
        timer.start()
        raise SystemExit
