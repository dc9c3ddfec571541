"""The recorder `cupti`, which has a low overhead. C code writes CUPTI's activity records to a file,
without running Python.

The recorder writes kernels, copies, memsets and the driver calls that the module `driver_calls`
lists. The record of a wait names the event or stream that the host waits for. The record of a call
has the number of the Python stack if `CallStacks` reads stacks at that time.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

from unstall.cupti import driver_calls as calls
from unstall.cupti import layouts, trial
from unstall.cupti.layouts import Kind
from unstall.errors import UnstallError
from unstall.guest import device

try:
    from unstall.cupti import _cupti
except ImportError:
    _cupti = None  # type: ignore[assignment]  # built only on Linux with a C compiler

RECORDS, NAMES, CALLS, VERSION = "activity.bin", "names.bin", "calls.bin", "cupti.json"
CHUNK_BYTES = 2 << 20
FIRST_BYTES = 32 << 20  # reserved when recording starts
MOST_BYTES = 4 << 30
FLUSH_MS = 1000
_NOT_BUILT = "the C extension for CUPTI is not built: install a C compiler, then unstall again"
_NO_DRIVER = "there is no NVIDIA driver here"
_KINDS = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMCPY_PEER, Kind.MEMSET, Kind.OVERHEAD)


class CuptiError(UnstallError):
    """Raised when CUPTI cannot be used in this process, now or ever."""


class Cupti:
    """The recorder `cupti`: records device ops and driver calls from `start` to `stop`, into files of a folder."""

    name = "cupti"
    any_thread = True

    def __init__(self, folder: Path) -> None:
        """Loads libcupti, and checks that it accepts a client. A separate process does both first,
        because libcupti may crash.

        Raises:
            CuptiError: libcupti accepts no client, or cannot be loaded.
            UnknownLayoutError: The sizes of this libcupti's records are not known.
        """
        why = unavailable()
        if why is not None:  # before the library, which may crash without a driver
            raise CuptiError(why)
        library = find_library()
        if library is None:
            raise CuptiError("libcupti was not found: it comes with torch's CUDA builds, or with the CUDA toolkit")
        why = trial.why_not(_cupti.__file__, library, folder)
        if why is not None:
            raise CuptiError(why)
        try:
            self._version = _cupti.load(str(library))
        except OSError as error:
            raise CuptiError(f"libcupti cannot be loaded: {error}") from error
        self._library, self._folder = library, folder
        self._sizes = layouts.sizes(self._version, library.name)
        self._counts: dict[str, object] = {}
        # Only a test: a recorder that never starts must not block other clients.
        try:
            _cupti.subscribe()
        except RuntimeError as error:
            raise CuptiError(_why(error)) from error
        _cupti.unsubscribe()

    def start(self) -> None:
        """Begins to record.

        Raises:
            CuptiError: CUPTI refuses to record. The message has the reason: for example, there is
                no driver, or another client is active.
        """
        about = {"version": self._version, "library": self._library.name}
        (self._folder / VERSION).write_text(json.dumps(about))
        try:
            _cupti.subscribe()
            _cupti.start(
                str(self._folder / RECORDS),
                str(self._folder / NAMES),
                str(self._folder / CALLS),
                tuple(_KINDS),
                tuple(calls.DRIVER),
                layouts.size_table(self._sizes),
                CHUNK_BYTES,
                FIRST_BYTES,
                MOST_BYTES,
                FLUSH_MS,
            )
        except (RuntimeError, OSError) as error:
            _cupti.unsubscribe()
            raise CuptiError(_why(error)) from error

    def flush(self) -> None:
        """Writes the records of finished device work to the folder of the recording."""
        _cupti.flush()

    def stop(self) -> None:
        """Stops recording, and releases CUPTI. Call this only after the device has finished all launched work."""
        try:
            _cupti.flush()
        finally:
            self._counts = _cupti.stop()

    def forked(self) -> None:
        """Does nothing, because CUDA does not work in a forked child process."""

    def facts(self) -> dict[str, object]:
        """Returns facts about this recording for the trace: versions and counts, by name."""
        return {"version": self._version, "library": self._library.name, **self._counts}


def _why(error: Exception) -> str:
    if "MULTIPLE_SUBSCRIBERS" in str(error):
        return (
            "another profiler uses CUPTI in this process (torch.profiler, nsys or the like), and only one can at a time"
        )
    if not device.has_driver():
        return _NO_DRIVER
    return f"CUPTI does not record here: {error}"


def unavailable() -> str | None:
    """Returns the reason why CUPTI cannot record on this machine; None if it may be able to record.

    This can be called before the program to record runs.
    """
    if _cupti is None:
        return _NOT_BUILT
    return None if device.has_driver() else _NO_DRIVER


def try_ahead(folder: Path) -> None:
    """Tests whether libcupti crashes on this machine, and writes the result to `folder`. A program
    that later records into `folder` uses this result instead of testing again.

    Raises:
        OSError: `folder` cannot be written.
    """
    library = find_library() if unavailable() is None else None
    if library is not None:
        trial.try_ahead(_cupti.__file__, library, folder)


def find_library() -> Path | None:
    """Returns the path of libcupti; None if there is none.

    If this process has loaded a libcupti, returns that one. If not, returns torch's, or else that
    of the CUDA toolkit.
    """
    return _loaded() or next(filter(Path.is_file, _candidates()), None)


def _loaded() -> Path | None:
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    return next((Path(line.split(maxsplit=5)[5]) for line in maps.splitlines() if "/libcupti.so" in line), None)


def _candidates() -> list[Path]:
    homes = [Path(home) for name in ("CUDA_HOME", "CUDA_PATH") if (home := os.environ.get(name))]
    toolkits = [*homes, Path("/usr/local/cuda")]
    folders = [
        *(package / below for package in _packages("nvidia") for below in ("cu13/lib", "cuda_cupti/lib")),
        *(package / "lib" for package in _packages("torch")),
        *(toolkit / below for toolkit in toolkits for below in ("extras/CUPTI/lib64", "lib64")),
    ]
    return [library for folder in folders for library in sorted(folder.glob("libcupti.so*"), reverse=True)]


def _packages(name: str) -> list[Path]:
    """Returns the folders of an installed package, without importing the package."""
    if name in sys.modules:
        return [Path(folder) for folder in sys.modules[name].__path__]
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return []
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
