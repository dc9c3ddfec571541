"""Makes environment variables for child processes. If a Python process has these variables, code of unstall runs in it
before the first line of its program. The code in `_bootstrap/` reads these variables."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

_BOOTSTRAP = str(Path(__file__).parent.absolute() / "_bootstrap")


def armed(environ: Mapping[str, str], module: str, settings: str, path0: str) -> dict[str, str]:
    """Returns environment variables for a new Python process. A process that has them calls `arm(settings)` of the
    module `module` before the first line of its program. Child processes of this process do not call `arm`.

    If `environ` was made inside a block of `arming_children` with `optional=False`, it already names a module M. Then
    the new process calls `arm(settings)` of M, not of `module`. All child processes of the new process call `arm(None)`
    of M.

    Args:
        environ: The environment variables to start from. They are not changed.
        module: The name of the module that has the function `arm`.
        settings: The argument for `arm`.
        path0: The first entry of `sys.path` in the program.
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


def all_are_armed(environ: Mapping[str, str]) -> bool:
    """Returns whether a process with these environment variables was started in a block of `arming_children` with
    `optional=False`, such as that of a virtual GPU. Then all processes that it starts call `arm` of one module."""
    return "UNSTALL_ARM_ALL" in environ


def _with_bootstrap(path: str | None) -> str:
    folders = path.split(os.pathsep) if path else []
    return os.pathsep.join(folders if _BOOTSTRAP in folders else [_BOOTSTRAP, *folders])


class arming_children(ExitStack):  # noqa: N801 - used like a function
    """A context manager that sets environment variables of this process. Each Python process that starts during the
    block calls `arm(None)` of `module` before the first line of its program. Child processes of such a process also
    call `arm(None)`. At the end of the block, all environment variables are restored.

    Args:
        module: The name of the module that has the function `arm`.
        environment: Additional environment variables for the child processes. The code of `module` reads them.
        optional: Whether a child process may run without a successful call of `arm(None)`. If True, it does so in three
            cases: if the call fails, if the process uses another version of Python, or if the process already calls
            `arm` of another module. If False, a process in which the call fails ends.
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
