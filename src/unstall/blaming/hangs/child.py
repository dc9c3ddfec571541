"""Makes a process able to answer what it is doing, if it hangs. To do so, starts an agent (a thread
in C that answers), and writes a file that identifies the process.

This module runs in all Python processes of a program, so it imports very little.
"""

from __future__ import annotations

import atexit
import faulthandler
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from unstall.guest.imports import when_imported
from unstall.guest.patching import wrap_after

try:
    from unstall.blaming import _blame
except ImportError:
    _blame = None  # type: ignore[assignment]  # built only on Linux with a C compiler

WHO, ANSWERS, STACKS = "process.json", "answers.bin", "stacks.txt"
_GROUP = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")


def can_attend() -> bool:
    """Returns whether `attend` can start an agent in this process (a thread that answers what the process is doing)."""
    return _blame is not None and _blame.frames_supported()


def attend(folder: Path) -> Callable[[], None]:
    """Starts an agent in this process: a thread that tells `unstall run`, if asked, which lines the
    process is executing and which of its streams have finished. Also writes a description of the
    process to `folder`.

    Returns a function that ends the agent. This function does not remove the description.
    """
    undo = ExitStack()
    process = os.getpid()
    stacks = os.open(folder / STACKS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    undo.callback(os.close, stacks)
    number = _free_signal()
    faulthandler.register(number, file=stacks, all_threads=True)
    undo.callback(faulthandler.unregister, number)
    _blame.agent(str(folder / ANSWERS), stacks, number)
    undo.callback(_blame.end_agent)
    undo.callback(when_imported("torch.distributed.distributed_c10d", lambda: _follow_ranks(folder, undo)))
    _say_who(folder, os.environ.get("RANK"), os.environ.get("WORLD_SIZE"))
    atexit.register(lambda: _blame.end_agent() if os.getpid() == process else None)  # the driver ends after that
    return undo.close


def _free_signal() -> int:
    """Returns a real-time signal that has no handler. The agent raises the signal only in the agent's own thread."""
    for number in range(signal.SIGRTMAX - 1, signal.SIGRTMIN, -1):
        if signal.getsignal(number) is signal.SIG_DFL:
            return number
    raise OSError("every real-time signal is in use")


def _follow_ranks(folder: Path, undo: ExitStack) -> None:
    """Writes the rank of this process to `folder` each time `init_process_group` has returned."""
    distributed = sys.modules["torch.distributed.distributed_c10d"]
    process = os.getpid()

    def tell(*_args: object, **_kwargs: object) -> None:
        if os.getpid() != process:
            return  # a forked child, which cannot be asked
        with suppress(Exception):
            _say_who(folder, distributed.get_rank(), distributed.get_world_size())

    if hasattr(distributed, "init_process_group"):
        undo.callback(wrap_after(distributed, "init_process_group", tell))


def _say_who(folder: Path, rank: object, world_size: object) -> None:
    who = {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "started": int(Path("/proc/self/stat").read_text(errors="replace").rpartition(")")[2].split()[19]),
        "main_thread": threading.main_thread().ident,
        "program": next((word for word in sys.orig_argv[1:] if not word.startswith("-")), ""),
        "rank": _number(rank),
        "world_size": _number(world_size),
        "group": "|".join(os.environ.get(name, "") for name in _GROUP) if "RANK" in os.environ else "",
    }
    new = folder / f"{WHO}.new"
    new.write_text(json.dumps(who))
    new.replace(folder / WHO)


def _number(value: object) -> int | None:
    return int(str(value)) if value is not None and str(value).isdecimal() else None
