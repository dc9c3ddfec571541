"""Starts a program so that code of unstall runs before the program's first line. Like a shell, waits until the program
ends. Needs Linux."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from unstall.errors import UsageError
from unstall.launching.children import armed

_POLL_S = 0.2
_SENT_BY_THE_KERNEL = 0x80  # SI_KERNEL: Ctrl-C, Ctrl-\ or a closed terminal; the program received it too
_FORWARDED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
_WATCHED = {*_FORWARDED, signal.SIGCHLD}
_IGNORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}  # our Python ignores these; the program must not inherit that


@dataclass(frozen=True, slots=True)
class Exit:
    """How a program ended.

    Attributes:
        code: The exit code of the program. If a signal killed the program: 128 plus the number of the signal.
        signal: The number of the signal that killed the program. None if no signal killed the program.
    """

    code: int
    signal: int | None = None


def launch(
    program: Sequence[str],
    module: str,
    settings: str,
    *,
    stdout_to_stderr: bool = False,
    stderr: int | None = None,
    variables: Mapping[str, str] | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> Exit:
    """Runs `program` in a new Python process. The process calls `arm(settings)` of `module` before the program's first
    line. Waits until the program has ended.

    The program gets the standard streams and the interpreter flags of this process. Signals that are sent to this
    process are forwarded to the program.

    Args:
        program: The command line after `python`: SCRIPT ARGS…, or -m MODULE ARGS….
        module: The name of the module that has the function `arm`.
        settings: The argument for `arm`.
        stdout_to_stderr: Whether the program's stdout is redirected to stderr.
        stderr: A file descriptor that the program gets as its stderr. If None, the program gets the stderr of this
            process.
        variables: Environment variables for the program, in addition to those of this process.
        meanwhile: A function that is called about five times per second while the program runs.

    Raises:
        UsageError: The program cannot be started, or this Python process was started with flags that prevent the call
            of `arm`.
    """
    check_interpreter()
    command = [sys.executable, *interpreter_flags(sys.orig_argv), *program]
    streams = [] if stderr is None else [(os.POSIX_SPAWN_DUP2, stderr, 2)]
    if stdout_to_stderr:
        streams.append((os.POSIX_SPAWN_DUP2, 2, 1))
    # While blocked, a signal waits for _wait, so none is lost before the program can receive it.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    try:
        _flush()
        try:
            pid = os.posix_spawn(
                command[0],
                command,
                armed({**os.environ, **(variables or {})}, module, settings, first_on_path(program)),
                file_actions=streams,
                setsigmask=mask,
                setsigdef=_IGNORED_BY_PYTHON,
            )
        except OSError as error:
            raise UsageError(f"{command[0]}: cannot be started: {error.strerror or error}") from error
        with _told_of_children(), _caught_elsewhere() as caught:
            return _wait(pid, meanwhile, caught)
    finally:
        while signal.sigtimedwait(_WATCHED, 0):
            pass  # signals for the program are meaningless once it has ended
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def leave_as(ended: Exit) -> int:
    """Returns the program's exit code, so that this process can end with the same code. If a signal killed the program,
    kills this process by the same signal instead."""
    if ended.signal is not None:
        _flush()
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        with suppress(ValueError, OSError):  # SIGKILL has no handler
            signal.signal(ended.signal, signal.SIG_DFL)
        os.kill(os.getpid(), ended.signal)
    return ended.code


def check_interpreter() -> None:
    """Raises UsageError if this Python was started with -I, -E or -S. These flags turn off PYTHONPATH or sitecustomize.
    Unstall needs PYTHONPATH and sitecustomize to run code of unstall in the program."""
    if sys.flags.isolated or sys.flags.ignore_environment or sys.flags.no_site:
        raise UsageError("a program cannot be recorded under python's -I, -E or -S: leave that flag out")


def interpreter_flags(orig_argv: Sequence[str]) -> list[str]:
    """Returns the flags that a command line passes to the Python interpreter. For example, returns ["-u", "-X", "dev"]
    for `python -u -X dev -m unstall run train.py`."""
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
    """Returns the first entry of `sys.path` in a program. `program` is the program's command line after `python`.

    For a script, returns the script's folder. For a folder that is run as a script, returns the folder itself. For a
    module, returns the current folder.
    """
    name = Path(program[0])
    if program[0].startswith("-"):
        return os.getcwd()  # noqa: PTH109 - as text
    return str(name.absolute() if name.is_dir() else name.resolve().parent)


@contextmanager
def _told_of_children() -> Iterator[None]:
    """Ensures that this process receives SIGCHLD during the block, even if this process was started with SIGCHLD
    ignored.

    Enter the block after the program was started, so that SIGCHLD stays ignored in the program. The program does not
    end before the block is entered, because Python takes longer to start than this process takes to enter the block.
    """
    before = signal.getsignal(signal.SIGCHLD)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        if before is signal.SIG_IGN:
            signal.signal(signal.SIGCHLD, before)


@contextmanager
def _caught_elsewhere() -> Iterator[list[int]]:
    """Yields a list. If another thread of this process receives a signal during the block, the number of the signal is
    appended to the list.

    Threads of libraries such as numpy do not block signals. Without this function, a signal that reaches such a thread
    would end this process. SIGINT (Ctrl-C) and SIGQUIT are not appended, because the terminal sends them to the
    program, too.
    """
    caught: list[int] = []
    numbers = _FORWARDED - {signal.SIGINT, signal.SIGQUIT}
    numbers = {number for number in numbers if signal.getsignal(number) is signal.SIG_DFL}
    for number in numbers:
        signal.signal(number, lambda number, _frame: caught.append(number))
    try:
        yield caught
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _wait(pid: int, meanwhile: Callable[[], None], caught_elsewhere: list[int]) -> Exit:
    """Forwards signals to the program until the program has ended. Returns how the program ended."""
    while True:
        while caught_elsewhere:
            os.kill(pid, caught_elsewhere.pop())
        caught = signal.sigtimedwait(_WATCHED, _POLL_S)
        if caught and caught.si_signo in _FORWARDED and not _has_it(pid, caught):
            os.kill(pid, caught.si_signo)
        with suppress(Exception):  # a failed progress report must not abandon the program
            meanwhile()
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return Exit(128 - code, signal=-code) if code < 0 else Exit(code)


def _has_it(pid: int, caught: signal.struct_siginfo) -> bool:
    """Returns whether the program itself received the signal `caught`, so that the signal need not be forwarded.
    Returns True in two cases: the kernel sent the signal (for example for Ctrl-C), or the program sent the signal to
    the program's own process group.

    If another process sent the signal, returns False. It is then not known whether the signal was sent to this process
    only or to the whole process group.
    """
    return caught.si_code == _SENT_BY_THE_KERNEL or caught.si_pid == pid


def _flush() -> None:
    """Flushes stdout and stderr of this process, because another process will write to the same streams."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
