"""Runs compilers in a temporary folder. If this process ends, even by SIGKILL, its compilers are
ended and the folder is removed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from unstall.virtual.shim.installed import VirtualGpuError
from unstall.virtual.shim.sealed import seal

PROVED = "2.13"
"""A version of torch for which the shim is known to compile."""
_PREFIX = "making-"
# The guard is the leader of the compilers' process group. Its stdin ends when this process closes it or ends. Then it
# ends its group by SIGTERM, so that compilers also remove their own temporary files.
_GUARD = """trap "" TERM INT HUP; read -r _; kill -TERM 0; rm -rf -- "$1"; sleep 0.1; rm -rf -- "$1" """


@dataclass(frozen=True, slots=True)
class Workshop:
    """A temporary folder in which compilers work.

    Attributes:
        folder: The path of the folder.
    """

    folder: Path
    _group: int

    def make(self, command: list[str], result: Path) -> None:
        """Runs a compiler, and puts a seal (`sealed.seal`) on what it made.

        Args:
            command: The compiler's command, without the option for the output.
            result: The path of the output. The file appears there only once it is complete.

        Raises:
            VirtualGpuError: The compiler failed.
        """
        partial = self.folder / result.name
        done = self._run([*command, "-o", str(partial)])
        if done.returncode:
            partial.unlink(missing_ok=True)
            first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-500:].strip())
            if not first:
                how = f"exit code {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
                first = f"{command[0]} ended with {how}"
            raise VirtualGpuError(
                f"compiling the virtual GPU failed (it is known to compile for torch {PROVED}): {first}"
            )
        if partial != result:
            seal(partial)
            partial.chmod(0o700)  # whatever the umask
            partial.replace(result)

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "TMPDIR": str(self.folder)}  # a compiler that aborts leaves its temporary files
        return subprocess.run(
            command, capture_output=True, text=True, check=False, process_group=self._group, env=environment
        )


@contextmanager
def workshop(folder: Path) -> Iterator[Workshop]:
    """Makes a temporary folder within `folder` in which compilers can work. At the end of the
    block, ends the compilers that still run, and removes the temporary folder.

    Also removes temporary folders that earlier processes left because the machine went down. The
    caller must hold the lock of `folder`.
    """
    for left in folder.glob(f"{_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)
    made = tempfile.mkdtemp(prefix=_PREFIX, dir=folder)
    guard = subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, "unstall", made],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    with guard:  # closes its stdin, and waits for it
        yield Workshop(Path(made), guard.pid)
