"""Code that runs in the process of a program under `--blame`. This code records the work that the program launches."""

from __future__ import annotations

import atexit
import json
import os
import sys
import sysconfig
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from unstall import driver
from unstall.blaming.hangs.child import attend
from unstall.blaming.races.saved import keep_races
from unstall.errors import UnstallError
from unstall.frameworks import FRAMEWORKS, OURS, is_users
from unstall.guest import device
from unstall.guest.backward_passes import ENGINE, engine_modules
from unstall.guest.imports import when_imported
from unstall.guest.patching import wrap

try:
    from unstall.blaming import _blame
except ImportError:
    _blame = None  # type: ignore[assignment]  # built only on Linux with a C compiler

FRAMEWORK, LIBRARY, USER, NOBODY = range(4)
RING, STATE, ENDING, FORWARD = "blame.bin", "blame.json", "ending.json", "forward.json"


def arm(settings: str | None) -> None:
    """Starts to record the work that this process launches on the device.

    Args:
        settings: A JSON object whose fields are the arguments of `start`. Its field `folder` is
            required.
    """
    wanted = json.loads(settings or "{}")
    folder = Path(wanted["folder"])
    start(
        folder, pinned=wanted.get("pinned", ""), anomaly=wanted.get("anomaly", False), races=wanted.get("races", False)
    )
    with suppress(OSError):  # then it cannot be asked where it hangs
        attend(folder)
    process = os.getpid()
    atexit.register(lambda: _tell_ending(folder) if os.getpid() == process else None)


def start(folder: Path, *, pinned: str = "", anomaly: bool = False, races: bool = False) -> Callable[[], None]:
    """Starts to record the work that this process launches on the device.

    Each call of the CUDA driver that puts work on a stream is recorded in a file, from the time
    when torch initialises CUDA.

    Args:
        folder: The folder in which to write the file.
        pinned: Lines of the program: FILE:LINE:VISIT, separated by newlines. From the VISIT-th
            execution of the line on, the host waits for the work that the line launches. "" for no
            lines.
        anomaly: Whether to turn on torch's anomaly mode, in which torch stores the forward stack of
            each backward op.
        races: Whether to look for races too.

    Returns:
        A function that stops the recording.

    Raises:
        UnstallError: unstall cannot find the lines that make CUDA calls. The message gives the
            reason.
    """
    if (why := unavailable()) is not None:
        raise UnstallError(why)
    undo = ExitStack()
    _blame.open(str(folder / RING), pinned, whose_files())
    undo.callback(_blame.close)
    undo.callback(when_imported("torch", lambda: _when_torch_is_there(folder, undo, anomaly=anomaly)))
    if races:
        undo.callback(keep_races(folder))
    return undo.close


def start_now(folder: Path, ring: Path) -> None:
    """Starts immediately to record each call of the CUDA driver that puts work on a stream. CUDA
    must be initialised.

    Args:
        folder: The folder for other facts about this process, such as its version of torch.
        ring: The file in which to record the calls. It must not exist.
    """
    _blame.open(str(ring), "", whose_files())
    _follow(folder, ExitStack())


def look() -> None:
    """Asks the CUDA driver whether the device has failed. If it has, records the error.

    This also finds an error that no CUDA call has returned yet.
    """
    _blame.look()


def unavailable() -> str | None:
    """Returns the reason why unstall cannot find the lines that make CUDA calls; None if it can find them."""
    if (why := driver.unavailable()) is not None:
        return f"--blame: {why}"
    if _blame is None:
        return "--blame: the C extension is not built: install a C compiler, then unstall again"
    if not _blame.frames_supported():
        return f"--blame: where frames are in Python {sys.version_info.major}.{sys.version_info.minor} is not known"
    return None


def whose_files() -> tuple[tuple[str, int], ...]:
    """Returns `(pattern, owner)` pairs, which say who wrote a source file. A file belongs to the
    owner in the first pair whose pattern matches the file's path. A file without a match is the
    user's.

    A pattern that begins with ^ matches only at the start of a path. Other patterns match anywhere
    in a path. The owner is a number: 0 for a framework, 1 for a library, 2 for the user, 3 for
    nobody.
    """
    packages = tuple(f"{kind}-packages/{name}/" for kind in ("site", "dist") for name in sorted(FRAMEWORKS))
    standard = {f"^{path}/" for name in ("stdlib", "platstdlib") if (path := sysconfig.get_path(name))}
    return (
        ("^<shim>", NOBODY),
        ("^<ipython-input-", USER),
        *((part, FRAMEWORK) for part in ("^<", f"^{OURS}", "torchinductor_", "triton/cache/", *packages)),
        *((part, LIBRARY) for part in ("/site-packages/", "/dist-packages/")),
        *((part, FRAMEWORK) for part in sorted(standard)),
    )


def _when_torch_is_there(folder: Path, undo: ExitStack, *, anomaly: bool) -> None:
    process = os.getpid()

    def begin() -> None:
        if os.getpid() == process:  # no forked child; the folder is its parent's
            _follow(folder, undo, anomaly=anomaly)

    undo.callback(device.when_initialised(begin))


def _follow(folder: Path, undo: ExitStack, *, anomaly: bool = False) -> None:
    torch: Any = sys.modules["torch"]
    state: dict[str, object] = {"torch": torch.__version__, "python": sys.version.split()[0]}
    try:
        _blame.follow()
        _follow_backward(undo)
        if anomaly:
            torch.autograd.set_detect_anomaly(mode=True, check_nan=False)
            _blame.when_failed(lambda: _tell_forward(folder))
    except Exception as error:  # never the program's
        state["failed"] = f"{type(error).__name__}: {error}"
    with suppress(OSError):  # there may be no room, and CUDA is being initialised for the program
        (folder / STATE).write_text(json.dumps(state))


def _tell_forward(folder: Path) -> None:
    """Writes a file to `folder`: the stack of the forward op whose backward op is running in this thread."""
    node = sys.modules["torch"]._C._current_autograd_node()
    if node is not None:
        about = {"node": node.name(), "stack": list(node.metadata.get("traceback_", ()))}
        (folder / FORWARD).write_text(json.dumps(about))


def _tell_ending(folder: Path) -> None:
    """Writes a file to `folder`, with what only this process knows about a fault: the last line of
    user code in the traceback, and the tensors that the failing line uses.
    """
    look()
    traceback = getattr(sys, "last_traceback", None)
    if traceback is None:
        return
    with suppress(Exception):  # the program has failed already, and in its own way
        import msgspec

        from unstall.blaming.result import Ending
        from unstall.blaming.ring import read_ring
        from unstall.blaming.tensors import last_user_line, tensors_of
        from unstall.blaming.verdict import verdict

        suspects = verdict(read_ring(folder / RING)).suspects
        where = suspects[0].where if suspects else None
        ending = Ending(
            tensors=tensors_of(where, traceback) if where else (),
            traceback=last_user_line(traceback, is_users),
        )
        (folder / ENDING).write_bytes(msgspec.json.encode(ending))


def _follow_backward(undo: ExitStack) -> None:
    """Attributes work of autograd's own threads to the line of the `backward()` call.

    Autograd's threads have no Python frames.
    """
    for module in engine_modules():
        undo.callback(wrap(module, ENGINE, _during_backward))


def _during_backward(original: Any, *args: Any, **kwargs: Any) -> Any:
    before = _blame.backward()
    try:
        return original(*args, **kwargs)
    finally:
        _blame.backward_over(before)
