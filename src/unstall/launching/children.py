"""The environment that arms Python processes before their first line. `_bootstrap/` reads this environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

_BOOTSTRAP = str(Path(__file__).parent.absolute() / "_bootstrap")


def armed(environ: Mapping[str, str], module: str, settings: str, path0: str) -> dict[str, str]:
    """Returns an environment in which a Python process calls `arm(settings)` of `module` before its first line.

    The Python processes that it starts are not armed. But if `environ` arms all processes (`arming_children`), then
    `arm` of the module that `environ` names is called, with the same settings, and not that of `module`.
    `path0` is the first entry of the program's `sys.path`.
    """
    path = environ.get("PYTHONPATH")
    return {
        **environ,
        "PYTHONPATH": _with_bootstrap(path),
        **({} if path is None else {"UNSTALL_PYTHONPATH": path}),
        "UNSTALL_PATH0": path0,
        "UNSTALL_ARM": module,
        "UNSTALL_SETTINGS": settings,
        "UNSTALL_SUPERVISOR": str(os.getpid()),
    }


def _with_bootstrap(path: str | None) -> str:
    folders = path.split(os.pathsep) if path else []
    return os.pathsep.join(folders if _BOOTSTRAP in folders else [_BOOTSTRAP, *folders])


class arming_children(ExitStack):  # noqa: N801 - used like a function
    """A context manager. Every Python process that starts within calls `arm(None)` of `module`, and so do its children.

    `environment` has variables for these processes, which `module` reads. `optional`: a process runs without being
    armed if it cannot be armed, uses another version of Python, or is already armed by another module. At the end of
    the block, all environment variables are restored.
    """

    def __init__(self, module: str, environment: Mapping[str, str], *, optional: bool = False) -> None:
        super().__init__()
        path = _with_bootstrap(os.environ.get("PYTHONPATH"))
        arm = "UNSTALL_ARM_CHILDREN" if optional else "UNSTALL_ARM_ALL"
        version = {"UNSTALL_CHILDREN_PYTHON": ".".join(map(str, sys.version_info[:2]))} if optional else {}
        for name, value in {"PYTHONPATH": path, arm: module, **version, **environment}.items():
            self._set(name, value)

    def _set(self, name: str, value: str) -> None:
        before = os.environ.get(name)
        os.environ[name] = value
        undo: Callable[[], object] = (
            (lambda: os.environ.pop(name, None)) if before is None else (lambda: os.environ.__setitem__(name, before))
        )
        self.callback(undo)
