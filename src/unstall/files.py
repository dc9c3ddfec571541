"""Writing files so that nobody ever sees half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from unstall.errors import UsageError


def write_atomically(path: str | Path, data: bytes) -> None:
    """Write beside `path`, then rename over it. Raises UsageError where the place cannot be written.

    What is no regular file (`/dev/stdout`, a pipe) is written straight to.
    """
    target = Path(path)
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(data)
            return
        target = target.resolve()
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as beside:
            temporary = Path(beside.name)
            try:
                beside.write(data)
                beside.close()
                temporary.chmod(_mode(target))
                temporary.replace(target)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"{path}: cannot be written: {reason}. Choose another place for the output") from error


def _mode(target: Path) -> int:
    """The mode an ordinary `open` would leave: the file's own, or that of a new file under the umask."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
