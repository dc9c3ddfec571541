"""Says what to type if a user gives a command to `unstall run` instead of a script.

Examples of such commands are `python train.py` and `torchrun train.py`.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from unstall.did_you_mean import most_similar, suggestion

_PYTHON = re.compile(r"(python|pypy)(\d+(\.\d+)?)?")
# These start Python on a script by `COMMAND [OPTIONS] SCRIPT`, or on a module by `COMMAND [OPTIONS] -m MODULE`.
_LAUNCHERS = {
    "torchrun": ("-m", "--module"),  # torch/distributed/run.py
    "accelerate": ("-m", "--module"),  # accelerate/commands/launch.py
    "deepspeed": ("--module",),  # deepspeed/launcher/runner.py
}
_RANKS = re.compile(r"--(?:nproc[-_]per[-_]node|num[-_]processes|num_gpus)[= ](\d+)")
_LAUNCHING_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")


def advice_on(words: Sequence[str], options: Sequence[str], *, module: bool = False, verb: str = "run") -> str | None:
    """Returns a sentence that says what to type instead of `unstall run OPTIONS WORDS`. Returns
    None if WORDS begin with a script or a module, as they should.

    Args:
        words: WORDS: the program and its arguments, as typed.
        options: OPTIONS: the options of the verb, as typed.
        module: Whether the user typed -m before WORDS.
        verb: The verb, such as "run".
    """
    run = ["unstall", verb, *options]
    if module:
        if words[0].endswith(".py") and Path(words[0]).is_file():
            return f"-m takes the name of a module, and {words[0]} is a file: {_shown([*run, *words])}"
        if words[0] not in _LAUNCHING_MODULES:
            return None
        return _of_launcher(["python", "-m", words[0]], words[1:], ("-m", "--module"), run)
    if Path(words[0]).exists() and not _is_installed_command(words[0]):
        return None
    name = Path(words[0]).name
    if name in _LAUNCHERS:
        return _of_launcher([words[0]], words[1:], _LAUNCHERS[name], run)
    if _PYTHON.fullmatch(name):
        return _of_python(words, run)
    if Path(words[0]).exists():
        return None
    found = shutil.which(words[0])
    if found is None:
        return _missing(words[0], verb)
    if _is_python_script(Path(found)):
        return f"{words[0]} is a command: name its file: {_shown([*run, found, *words[1:]])}"
    return (
        f"{words[0]} is a command, and no script of Python: "
        f"where it starts Python, say `python -m unstall {verb} SCRIPT` for `python SCRIPT`"
    )


def launcher(environ: Mapping[str, str]) -> list[str]:
    """Returns ["torchrun", "…", "-m"] if torchrun or a similar launcher started this process; [] if
    none did.

    "…" stands for the options of the launcher, which are not known. `environ` has the environment
    variables of this process.
    """
    ranks = environ.get("LOCAL_WORLD_SIZE", "1")
    several = ranks.isdecimal() and ranks != "1"
    return ["torchrun", "…", "-m"] if several or "TORCHELASTIC_RUN_ID" in environ else []


def _of_python(words: Sequence[str], run: Sequence[str]) -> str:
    """Returns a sentence on what to type instead of, for example, `unstall run python -u train.py`.

    In the suggested command, Python's own flags follow `python`. `run` contains "unstall", the verb (such as "run"),
    and the options of the verb.
    """
    rest = list(words[1:])
    flags: list[str] = []
    while rest and rest[0].startswith("-") and not rest[0].startswith("-m"):
        flags.append(rest.pop(0))
        if flags[-1] in ("-W", "-X") and rest:
            flags.append(rest.pop(0))
    if not rest or "-c" in flags or "-" in flags:
        return f"{words[0]} is left out, since unstall starts it: {_shown([*run, 'SCRIPT'])}"
    if rest[:3] == ["-m", *run[:2]]:
        return f"unstall is there twice: {_shown([words[0], *flags, *rest])}"
    if flags or words[0] not in ("python", "python3"):
        return f"Python comes first: {_shown([words[0], *flags, '-m', *run, *rest])}"
    return f"{words[0]} is left out, since unstall starts it: {_shown([*run, *rest])}"


def _of_launcher(command: Sequence[str], rest: Sequence[str], module: Sequence[str], run: Sequence[str]) -> str:
    """Returns a sentence on what to type instead of, for example, `unstall run torchrun --nproc-per-node 8 train.py`.

    The suggested command begins with the launcher, so that unstall records each process that the launcher starts.

    Args:
        command: The words of the launcher, such as ["torchrun"].
        rest: The words after the launcher: its options, and the program.
        module: The options with which the launcher starts a module, such as "-m".
        run: "unstall", the verb (such as "run"), and the options of the verb.
    """
    flags, program = _split(rest, module)
    within = ["-m" if "-m" in module else "--module", "unstall", *_with_gpus(run[1:], flags)]
    shown = _shown([*command, *flags, *within, *program])
    return f"{Path(command[-1]).name} comes first, so that each of its processes is recorded: {shown}"


def _with_gpus(run: Sequence[str], flags: Sequence[str]) -> list[str]:
    """Changes --gpu so that each rank has a virtual GPU: for a launcher of 2 ranks, --gpu h200 becomes --gpu h200:2.

    `run` contains the verb and its options. `flags` contains the options of the launcher.
    """
    ranks = _RANKS.search(" ".join(flags))
    if ranks is None or "--gpu" not in run[:-1]:
        return list(run)
    place = run.index("--gpu") + 1
    gpu = run[place] if ":" in run[place] else f"{run[place]}:{ranks[1]}"
    return [*run[:place], gpu, *run[place + 1 :]]


def _split(rest: Sequence[str], module: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits the words after a launcher. Returns (the launcher's options, the program with its arguments).

    The program begins at the first word that is a script or is contained in `module`, such as "-m".
    """
    for place, word in enumerate(rest):
        if word in module:
            return list(rest[:place]), ["-m", *rest[place + 1 :]]
        if word.endswith(".py") and not word.startswith("-"):
            return list(rest[:place]), list(rest[place:])
    return list(rest), ["SCRIPT"]


def _missing(word: str, verb: str) -> str:
    """Returns a sentence that says that there is no such script. The sentence suggests a script with a similar name, if
    there is one.
    """
    path = Path(word)
    try:
        near = [each.name for each in path.parent.iterdir() if each.suffix == ".py"]
    except OSError:
        return f"{word}: there is no such script, nor the folder {path.parent}"
    close = most_similar(path.name, near) or next((name for name in near if name == f"{path.name}.py"), "")
    meant = suggestion(close and path.with_name(close))
    if not meant and re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", word) and path.suffix != ".py":
        meant = f"; a module is run by -m: unstall {verb} -m {word}"
    return f"{word}: there is no such script{meant}"


def _is_installed_command(word: str) -> bool:
    """Returns whether a path is the path of an installed command, such as /venv/bin/torchrun or /usr/bin/python."""
    name = Path(word).name
    return "/" in word and (name in _LAUNCHERS or _PYTHON.fullmatch(name) is not None)


def _is_python_script(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline(512)
    return first.startswith(b"#!") and b"python" in first


def _shown(words: Sequence[str]) -> str:
    return f"`{shlex.join(words)}`"
