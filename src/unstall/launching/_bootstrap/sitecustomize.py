"""Arms a program before its first line: lets unstall record the program, or gives the program a virtual GPU.

Python imports this module by its name as Python starts, because the module's folder is first on PYTHONPATH
(`children.py`). The module then removes itself: when the program begins, the environment, `sys.path` and `sys.modules`
are the program's own, and child processes are plain Python. If this module hides another sitecustomize, the hidden one
runs instead.

An environment variable names the module whose function `arm(settings)` arms the program: UNSTALL_ARM for this process
only, or UNSTALL_ARM_ALL for its children too. With UNSTALL_ARM_ALL, this variable and PYTHONPATH stay set. So they do
with UNSTALL_ARM_CHILDREN, which names the module for processes that no other variable names one for; if that module
fails, the process runs as it is.
"""

from __future__ import annotations

import os
import sys


def _restore() -> tuple[str | None, str | None, str | None, int, str]:
    """Undo what `unstall run` changed in the environment and the path.

    Returns the module that arms this process, the module that arms its children too, the settings, the supervisor's
    process id, and the folder that will be first on the path.
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
    sys.path_importer_cache.pop(here, None)
    return own, everyones, settings, supervisor, first


def _arm(module: str, settings: str | None) -> None:
    """Arms this process. If that fails, the program runs anyway."""
    try:
        _arm_by(module, settings)
    except Exception as error:
        sys.stderr.write(f"unstall: the program runs without being recorded: {type(error).__name__}: {error}\n")


def _arm_all(module: str, settings: str | None) -> None:
    """Arms this process as its parent was armed. If that fails, the program ends, since it must not run unarmed."""
    try:
        _arm_by(module, settings)
    except Exception as error:
        sys.stderr.write(f"unstall: there is no virtual GPU here: {type(error).__name__}: {error}\n")
        sys.stderr.flush()
        os._exit(3)


def _arm_child(module: str) -> None:
    """Arms a child of the program. If that fails, it runs as it is, and nothing is said."""
    try:
        _arm_by(module, None)
    except Exception:
        return


def _arm_by(module: str, settings: str | None) -> None:
    from importlib import import_module

    _import_own_unstall()
    import_module(module).arm(settings)


def _import_own_unstall() -> None:
    """Imports the unstall that this file belongs to, even if the program could not import it."""
    from importlib.util import module_from_spec, spec_from_file_location

    package = os.path.abspath(os.path.join(__file__, "..", "..", ".."))  # noqa: PTH100, PTH118
    spec = spec_from_file_location("unstall", os.path.join(package, "__init__.py"))  # noqa: PTH118
    if "unstall" not in sys.modules and spec is not None and spec.loader is not None:
        sys.modules["unstall"] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


def _hand_over(names: set[str], folder: str) -> None:
    """Forgets our module of each name if the program has a module of that name. Otherwise its imports would find ours.

    Our modules were imported before the program's folder was on the path. Our code still refers to them.
    """
    for name in names:
        top = os.path.join(folder, name.partition(".")[0])  # noqa: PTH118
        theirs = os.path.isfile(f"{top}.py") or os.path.isfile(f"{top}/__init__.py")  # noqa: PTH113
        if theirs and name.partition(".")[0] != "unstall":
            del sys.modules[name]


def _first_on_path() -> str:
    """Returns the folder that will be first on the path, if it was not passed in the environment."""
    from unstall.launching.launch import first_on_path, interpreter_flags

    words = sys.orig_argv[1 + len(interpreter_flags(sys.orig_argv)) :]
    return first_on_path(words or ["-"])


def _die_with(supervisor: int) -> None:
    """Makes Linux kill this process when the supervisor is killed, since then nothing forwards signals to it."""
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
    """Ends by Ctrl-C as plain Python would in the program. Otherwise Python would report a fatal error in `site`."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


_own, _everyones, _settings, _supervisor, _first = _restore()
_childrens = os.environ.get("UNSTALL_ARM_CHILDREN")
if _own is not None or _everyones is not None or _childrens is not None:
    _before = set(sys.modules)
    if _settings is not None:
        _die_with(_supervisor)
    try:
        if _everyones is not None:
            _arm_all(_everyones, _settings)
        elif _own is not None:
            _arm(_own, _settings)
        elif _childrens is not None:
            _arm_child(_childrens)
    except KeyboardInterrupt:
        _interrupted()
    if not sys.flags.safe_path:
        _hand_over(set(sys.modules) - _before, _first or _first_on_path())

# If there is no other sitecustomize, this raises the error that tells Python so.
del sys.modules["sitecustomize"]
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401
