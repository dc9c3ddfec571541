"""Shows on stderr how far a compilation is: how many files are compiled, which ones are being
compiled, and for how long it has been going on.
"""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

_TERMINAL_S, _FILE_S = 0.5, 15.0  # between two lines; a log need not have one a second
_WIDTH = 79


class Progress:
    """A context manager that shows, on stderr, how far the compilation of `total` files is. In a
    terminal, it changes one line. In a file, it adds a line every 15 seconds.
    """

    def __init__(self, title: str, total: int) -> None:
        self._total, self._done = total, 0
        self._running: list[str] = []
        self._began = time.monotonic()
        self._drawn = sys.stderr.isatty()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="unstall-progress", daemon=True)
        print(f"unstall: {title}", file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        clear = "\r\x1b[K" if self._drawn else ""
        ending = f"unstall: compiled in {self._seconds()} s\n" if kind is None else ""
        print(f"{clear}{ending}", end="", file=sys.stderr, flush=True)

    def begins(self, name: str) -> None:
        """Notes that the compilation of the file `name` begins."""
        with self._lock:
            self._running.append(name)

    def ends(self, name: str) -> None:
        """Notes that the compilation of the file `name` has ended."""
        with self._lock:
            self._running.remove(name)
            self._done += 1

    def line(self) -> str:
        """Returns a line such as "unstall: 12 of 31 files, 48 s: call.cpp, copies.cpp", cut at 79 characters."""
        with self._lock:
            names = ", ".join(self._running)
            text = f"unstall: {self._done} of {self._total} files, {self._seconds()} s" + (
                f": {names}" if names else ""
            )
        return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"

    def _seconds(self) -> int:
        return round(time.monotonic() - self._began)

    def _tell(self) -> None:
        while not self._ended.wait(_TERMINAL_S if self._drawn else _FILE_S):
            shown = f"\r\x1b[K{self.line()}" if self._drawn else f"{self.line()}\n"
            print(shown, end="", file=sys.stderr, flush=True)
