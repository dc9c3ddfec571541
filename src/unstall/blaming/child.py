"""What runs in the program's process: notes its work on the device from the first CUDA call on."""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path
from typing import Any

from unstall.cupti.recorder import find_library
from unstall.errors import UnstallError
from unstall.frameworks import FRAMEWORKS, OURS
from unstall.guest import device
from unstall.guest.imports import when_imported
from unstall.guest.patching import wrap

try:
    from unstall.blaming import _blame
except ImportError:
    _blame = None  # type: ignore[assignment]  # built only on Linux with a C compiler

RING, STATE = "blame.bin", "blame.json"


def arm(settings: str | None) -> None:
    """Lets this process be blamed: `settings` has the folder, and the lines to wait after."""
    wanted = json.loads(settings or "{}")
    folder = Path(wanted["folder"])
    start(folder, pinned=wanted.get("pinned", ""))


def start(folder: Path, *, pinned: str = "") -> None:
    """Opens the ring in `folder`, and follows the driver's calls once torch has initialised CUDA.

    Raises:
        UnstallError: This Python's frames cannot be read.
    """
    if (why := unavailable()) is not None:
        raise UnstallError(why)
    _blame.open(str(folder / RING), pinned, whose_files())
    when_imported("torch", lambda: _when_torch_is_there(folder))


def unavailable() -> str | None:
    """Returns why lines cannot be read at calls here, or None if they can."""
    if _blame is None:
        return "--blame: the C extension is not built: install a C compiler, then unstall again"
    if not _blame.frames_supported():
        return f"--blame: where frames are in Python {sys.version_info.major}.{sys.version_info.minor} is not known"
    return None


def whose_files() -> tuple[tuple[str, int], ...]:
    """Returns whose a file is, by the first part that is in its path: 0 a framework's, 1 another library's. Files in
    which none is are the user's."""
    packages = tuple(f"{kind}-packages/{name}/" for kind in ("site", "dist") for name in sorted(FRAMEWORKS))
    generated = ("<frozen ", "<string>", "<eval_with_key>", "torchinductor_", "/triton/cache/")
    standard = {path for name in ("stdlib", "platstdlib") if (path := sysconfig.get_path(name))}
    return (
        *((part, 0) for part in (OURS, *packages, *generated)),
        *((part, 1) for part in ("/site-packages/", "/dist-packages/")),
        *((f"{path}/", 0) for path in sorted(standard)),
    )


def _when_torch_is_there(folder: Path) -> None:
    torch: Any = sys.modules["torch"]

    def begin() -> None:
        state: dict[str, object] = {"torch": torch.__version__, "python": sys.version.split()[0]}
        try:
            library = find_library()
            if library is None:
                raise OSError("libcupti was not found")
            state["library"] = str(library)
            _blame.load(str(library))
            _blame.follow()
            _follow_backward(torch)
        except Exception as error:  # never the program's
            state["failed"] = f"{type(error).__name__}: {error}"
        (folder / STATE).write_text(json.dumps(state))

    device.when_initialised(begin)


def _follow_backward(torch: Any) -> None:
    """Lets work of autograd's own threads, which have no Python frames, count as that of the call that waits."""
    graph = sys.modules.get("torch.autograd.graph")
    for owner in (sys.modules.get("torch.autograd"), graph):
        if owner is not None and hasattr(owner, "_engine_run_backward"):
            wrap(owner, "_engine_run_backward", _during_backward)


def _during_backward(original: Any, *args: Any, **kwargs: Any) -> Any:
    before = _blame.backward()
    try:
        return original(*args, **kwargs)
    finally:
        _blame.backward_over(before)
