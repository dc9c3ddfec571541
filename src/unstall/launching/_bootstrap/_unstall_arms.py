"""Arms a program before its first line: unstall then records the program, or gives the program a virtual GPU.

When the program's first line runs, the environment, `sys.path` and `sys.modules` are as they would be without unstall.
Child processes of the program are not armed. The exceptions are UNSTALL_ARM_ALL and UNSTALL_ARM_CHILDREN, see below.

An environment variable names the module whose function `arm(settings)` arms the program. UNSTALL_ARM names a module for
this process only. UNSTALL_ARM_ALL names a module for this process and its child processes. So if UNSTALL_ARM_ALL is
set, UNSTALL_ARM_ALL and PYTHONPATH stay in the environment.

UNSTALL_ARM_CHILDREN names a module for every process that has neither of the other two variables. UNSTALL_ARM_CHILDREN
stays in the environment. If the call of the named module's `arm` fails, the process runs unarmed.
"""

from __future__ import annotations

import os
import sys


def _restore() -> tuple[str | None, str | None, str | None, int, str]:
    """Undoes what `unstall run` changed in the environment and in `sys.path`.

    Returns (own, everyones, settings, supervisor, first). `own` is the module whose `arm` is called in this process
    only, or None. `everyones` is the module whose `arm` is called in this process and in its child processes, or None.
    `settings` is the argument for `arm`, or None. `supervisor` is the process id of `unstall run`, or 0. `first` is the
    folder that will be first on `sys.path`, or "".
    """
    own = os.environ.pop("UNSTALL_ARM", None)
    everyones = os.environ.get("UNSTALL_ARM_ALL")
    settings = os.environ.pop("UNSTALL_SETTINGS", None)
    supervisor = int(os.environ.pop("UNSTALL_SUPERVISOR", "0"))
    first = os.environ.pop("UNSTALL_PATH0", "")
    path = os.environ.pop("UNSTALL_PYTHONPATH", None)
    if everyones is None and "UNSTALL_ARM_CHILDREN" not in os.environ:
        os.environ.pop("PYTHONPATH", None)
        if path is not None:
            os.environ["PYTHONPATH"] = path
    here = os.path.dirname(__file__)  # noqa: PTH120 - compared as text, and pathlib need not be imported yet
    if here in sys.path:
        sys.path.remove(here)
    return own, everyones, settings, supervisor, first


def _arm(module: str, settings: str | None) -> None:
    """Calls `arm(settings)` of the module `module`, so that unstall records this process. If the call fails, prints a
    message. The program then runs without being recorded."""
    try:
        _arm_by(module, settings)
    except Exception as error:
        sys.stderr.write(f"unstall: the program runs without being recorded: {type(error).__name__}: {error}\n")


def _arm_all(module: str, settings: str | None) -> None:
    """Calls `arm(settings)` of the module `module`, which gives this process a virtual GPU. If the call fails, ends
    this process, because the program must not run without a virtual GPU."""
    try:
        _arm_by(module, settings)
    except Exception as error:
        sys.stderr.write(f"unstall: there is no virtual GPU here: {type(error).__name__}: {error}\n")
        sys.stderr.flush()
        os._exit(3)


def _arm_child(module: str, before: set[str]) -> None:
    """Calls `arm(None)` of the module `module` in a child process of the program. If the call fails, prints no message,
    and the child process runs unarmed."""
    try:
        _arm_by(module, None)
        _hand_over(before, _first_on_path())
    except Exception:
        for name in set(sys.modules) - before:
            if name.partition(".")[0] == "unstall":  # what else was imported is what the program would import
                del sys.modules[name]


def _arm_by(module: str, settings: str | None) -> None:
    from importlib import import_module

    _import_own_unstall()
    import_module(module).arm(settings)


def _import_own_unstall() -> None:
    """Imports the package `unstall` that contains this file, even if the package is not on `sys.path`."""
    from importlib.util import module_from_spec, spec_from_file_location

    package = os.path.abspath(os.path.join(__file__, "..", "..", ".."))  # noqa: PTH100, PTH118
    spec = spec_from_file_location("unstall", os.path.join(package, "__init__.py"))  # noqa: PTH118
    if "unstall" not in sys.modules and spec is not None and spec.loader is not None:
        sys.modules["unstall"] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


def _hand_over(before: set[str], folder: str | None) -> None:
    """Lets the program import a module from the program's folder even if unstall has already imported another module of
    the same name.

    For each such name, removes from `sys.modules` the module that unstall imported. The code of unstall keeps its
    references to the removed modules. `before` has the names of the modules that were imported before unstall. `folder`
    is the folder that will be first on `sys.path`.
    """
    if folder is None or sys.flags.safe_path:
        return
    for name in set(sys.modules) - before:
        top = os.path.join(folder, name.partition(".")[0])  # noqa: PTH118
        theirs = os.path.isfile(f"{top}.py") or os.path.isfile(f"{top}/__init__.py")  # noqa: PTH113
        if theirs and name.partition(".")[0] != "unstall":
            del sys.modules[name]


def _first_on_path() -> str | None:
    """Finds out from this process's command line which folder will be first on `sys.path`. Returns None if the first
    folder would be the current folder and the current folder was deleted."""
    from unstall.launching.launch import first_on_path, interpreter_flags

    words = sys.orig_argv[1 + len(interpreter_flags(sys.orig_argv)) :]
    try:
        return first_on_path(words or ["-"])
    except FileNotFoundError:
        return None


def _die_with(supervisor: int) -> None:
    """Asks Linux to kill this process when the process `supervisor` is killed. Without the supervisor, no process would
    forward signals to this process."""
    try:
        import ctypes
        import signal

        prctl, set_parent_death_signal = ctypes.CDLL(None).prctl, 1
        prctl(set_parent_death_signal, ctypes.c_ulong(signal.SIGKILL))
        if os.getppid() != supervisor:  # it was killed before that; or a wrapper around Python stands in between
            prctl(set_parent_death_signal, ctypes.c_ulong(0))
            os.kill(supervisor, 0)
    except ProcessLookupError:
        os.kill(os.getpid(), signal.SIGKILL)
    except (ImportError, OSError, AttributeError):
        pass


def _interrupted() -> None:
    """Ends this process by SIGINT, as Ctrl-C ends plain Python. Without this function, Python would report a fatal
    error in `site`."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


def arm_this_process() -> None:
    """Calls `arm` of the module that the environment variables name for this process. Removes the environment variables
    that the program must not see."""
    own, everyones, settings, supervisor, first = _restore()
    childrens = os.environ.get("UNSTALL_ARM_CHILDREN")
    before = set(sys.modules)
    if settings is not None:
        _die_with(supervisor)
    try:
        if everyones is not None:
            _arm_all(everyones, settings)
            _hand_over(before, first or _first_on_path())
        elif own is not None:
            _arm(own, settings)
            _hand_over(before, first or _first_on_path())
        elif childrens is not None:
            _arm_child(childrens, before)
    except KeyboardInterrupt:
        _interrupted()
