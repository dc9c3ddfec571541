"""Starting a program that is armed before its first line, and waiting for it as a shell would. Needs Linux."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from unstall.errors import UsageError
from unstall.launching.children import armed

_POLL_S = 0.2
_SENT_BY_THE_KERNEL = 0x80  # SI_KERNEL: Ctrl-C, Ctrl-\ or a terminal that went away; the program got it too
_FORWARDED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
_WATCHED = {*_FORWARDED, signal.SIGCHLD}
_IGNORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}  # by ours, and the program shall not inherit that


@dataclass(frozen=True, slots=True)
class Exit:
    """How a program ended: with an exit code, or killed by a signal (then `code` is 128 + the signal)."""

    code: int
    signal: int | None = None


def launch(
    program: Sequence[str],
    module: str,
    settings: str,
    *,
    stdout_to_stderr: bool = False,
    meanwhile: Callable[[], None] = lambda: None,
) -> Exit:
    """Run plain Python on `program`, armed by `module`'s `arm(settings)`, and wait until it has ended.

    `program` is what would follow `python`: SCRIPT ARGS…, or -m MODULE ARGS…. It has our streams, our flags of the
    interpreter, and the signals that are sent to us. `meanwhile` is called some five times a second.

    Raises:
        UsageError: Such a program cannot be started, or could not be armed.
    """
    check_interpreter()
    command = [sys.executable, *interpreter_flags(sys.orig_argv), *program]
    streams = [(os.POSIX_SPAWN_DUP2, 2, 1)] if stdout_to_stderr else []
    # Blocked, a signal waits for _wait, and none is lost before the program is there to be sent it.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    try:
        _flush()
        try:
            pid = os.posix_spawn(
                command[0],
                command,
                armed(os.environ, module, settings, first_on_path(program)),
                file_actions=streams,
                setsigmask=mask,
                setsigdef=_IGNORED_BY_PYTHON,
            )
        except OSError as error:
            raise UsageError(f"{command[0]}: cannot be started: {error.strerror or error}") from error
        with _told_of_children():
            return _wait(pid, meanwhile)
    finally:
        while signal.sigtimedwait(_WATCHED, 0):
            pass  # what was meant for the program has no meaning after it
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def leave_as(ended: Exit) -> int:
    """The exit code to leave with, as the program did; where a signal killed it, the same signal kills us."""
    if ended.signal is not None:
        _flush()
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        with suppress(ValueError, OSError):  # of SIGKILL, which has no handler
            signal.signal(ended.signal, signal.SIG_DFL)
        os.kill(os.getpid(), ended.signal)
    return ended.code


def check_interpreter() -> None:
    """Raise UsageError under flags by which Python ignores PYTHONPATH or sitecustomize, and nothing can be armed."""
    if sys.flags.isolated or sys.flags.ignore_environment or sys.flags.no_site:
        raise UsageError("a program cannot be recorded under python's -I, -E or -S: leave that flag out")


def interpreter_flags(orig_argv: Sequence[str]) -> list[str]:
    """Python's own flags in a command line such as `python -u -X dev -m unstall run train.py`: -u -X dev."""
    flags: list[str] = []
    words = iter(orig_argv[1:])
    for word in words:
        if word in ("-", "--") or not word.startswith("-"):
            break
        if word.startswith("--"):  # --check-hash-based-pycs MODE
            flags += [word, next(words, "")]
            continue
        for position, letter in enumerate(word[1:], 1):
            if letter in "cm":
                return flags + ([word[:position]] if position > 1 else [])
            if letter in "WX":
                flags += [word] if word[position + 1 :] else [word, next(words, "")]
                break
        else:
            flags.append(word)
    return flags


def first_on_path(program: Sequence[str]) -> str:
    """What Python will put first on the program's `sys.path`: the script's folder; the script, if that is one."""
    name = Path(program[0])
    if program[0].startswith("-"):
        return os.getcwd()  # noqa: PTH109 - as text
    return str(name.absolute() if name.is_dir() else name.resolve().parent)


@contextmanager
def _told_of_children() -> Iterator[None]:
    """Let this process wait for its children, even if it was started with SIGCHLD ignored.

    Only from now on: the program has been told to ignore it too, and takes longer to start than to come here.
    """
    before = signal.getsignal(signal.SIGCHLD)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        if before is signal.SIG_IGN:
            signal.signal(signal.SIGCHLD, before)


def _wait(pid: int, meanwhile: Callable[[], None]) -> Exit:
    """Forward signals to the program until it has ended."""
    while True:
        caught = signal.sigtimedwait(_WATCHED, _POLL_S)
        if caught and caught.si_signo in _FORWARDED and not _has_it(pid, caught):
            os.kill(pid, caught.si_signo)
        with suppress(Exception):  # telling how far it is must not leave the program alone
            meanwhile()
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return Exit(128 - code, signal=-code) if code < 0 else Exit(code)


def _has_it(pid: int, caught: signal.struct_siginfo) -> bool:
    """Whether the program got this signal by itself: from the terminal, or as it sent it to its own process group.

    Of one that somebody else sent, nothing says whether it was to us or to our process group, and so to both.
    """
    return caught.si_code == _SENT_BY_THE_KERNEL or caught.si_pid == pid


def _flush() -> None:
    """Write what we have printed, before somebody else writes to the same streams."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
