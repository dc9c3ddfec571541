"""Learn asynchronous execution: short experiments, with the figures that their authors saw.

    unstall course
    unstall course launches_return_at_once
    unstall course first iteration
    unstall course 8 --gpu h200
    unstall course all
    unstall course 1 --explain
    unstall course 8 --copy my-course
    unstall course my-course/the_allocator_keeps_memory.py

Without EXPERIMENT, all experiments are listed. Words in its place, such as an error or a whole question, list the
experiments that are about most of them, the best first.

An experiment is a script of at most 64 lines that shows one effect, such as launches that return before their work is
done. The script runs in a process of its own, on this machine's GPU, or on a virtual T4 if there is none. The report
shows the script's figures beside the figures that its author saw, and checks that the effect occurred. Checks are about
counts and ratios of times, so they hold on every GPU.

To try a change, copy the script with --copy, change the copy, and give its path as EXPERIMENT.

The exit code is 1 if a check does not hold, or if a script fails or is stopped. The last lines say which.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from unstall.cli._arguments import add_value, parse_limit
from unstall.cli._output import add_output_options, check_outputs, deliver
from unstall.cli._virtual_options import add_simulation_options
from unstall.errors import UsageError
from unstall.figures import counted

if TYPE_CHECKING:
    from unstall.course.answer import Listed
    from unstall.course.result import Experiment
    from unstall.course.row import Row

ALL = "all"
_USUAL = "t4"  # the author's GPU
_Scripts: TypeAlias = list[tuple[str, Path]]
"""Experiments to run: the name of each, and its script. It may be a changed copy."""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "experiments",
        metavar="EXPERIMENT",
        nargs="*",
        help="names, numbers, paths of copies, all, or words to look for",
    )
    virtual = parser.add_argument_group("a virtual GPU", "By default, each experiment gets the options that it needs.")
    virtual.add_argument("--gpu", metavar="NAME", help="run on a virtual GPU, such as h200")
    add_simulation_options(virtual)
    add_value(parser, "--timeout", "SECONDS", parse_limit, "stop a script after this time (default: 600)")
    instead = parser.add_argument_group("instead of running it").add_mutually_exclusive_group()
    instead.add_argument("--show", action="store_true", help="print the script")
    instead.add_argument(
        "--copy", metavar="FOLDER", help="copy the script, and a notebook of it, to FOLDER, so that you can change them"
    )
    instead.add_argument(
        "--explain", action="store_true", help="copy the script to the current folder, and explain it with unstall run"
    )
    add_output_options(parser, but="only what")


def run(args: argparse.Namespace) -> int:
    check_outputs(args)
    words: list[str] = args.experiments
    instead = args.show or args.copy is not None or args.explain
    if not instead and (several := _listed(words)) is not None:
        deliver(several, args)
        return 0
    scripts = _chosen(words or [ALL])
    if args.show:
        return _show(scripts)
    if args.copy is not None:
        return _copy(scripts, Path(args.copy))
    if args.explain:
        return _explain(scripts, args)
    from unstall.course.answer import Studied

    found = Studied(_ran(scripts, args))
    deliver(found, args)
    return 0 if found.holds else 1


def _gpu(args: argparse.Namespace) -> str | None:
    """Returns the name of the virtual GPU to use, or None for this machine's GPU."""
    from unstall.guest.device import has_gpu

    if args.gpu is None and has_gpu():
        if args.numerics or args.host:
            raise UsageError("--numerics and --host are for a virtual GPU: add --gpu, such as --gpu t4")
        return None
    if sys.platform != "linux":
        raise UsageError("there is no GPU here, and a virtual one needs Linux")
    from unstall.cli._virtual_options import get_ready

    gpu: str = args.gpu or _USUAL
    get_ready(gpu)
    return gpu


def _listed(words: list[str]) -> Listed | None:
    """Returns the list of all experiments if there are no words, or of those that are about the words. Returns None if
    the words name experiments: all of them, or all but one (a whole question may have numbers, or the word "all").

    Raises:
        UsageError: No experiment is about the words.
    """
    from unstall.course.answer import Listed
    from unstall.course.search import about, is_named, nothing_about
    from unstall.course.table import table

    if not words:
        return Listed(names=list(table()))
    named = sum(word == ALL or word.endswith(".py") or is_named(word) for word in words)
    if named and len(words) - named <= 1:
        return None
    if found := about(words):
        return Listed(names=found, words=" ".join(words))
    raise nothing_about(words)


def _chosen(words: list[str]) -> _Scripts:
    from unstall.course.search import chosen
    from unstall.course.table import script, table

    found = []
    for word in words:
        found += [(name, script(name)) for name in table()] if word == ALL else [chosen(word)]
    return list(dict.fromkeys(found))


def _row(name: str, args: argparse.Namespace) -> Row:
    """Returns an experiment, with the options that were given in place of its own."""
    from unstall.course.table import table

    row = table()[name]
    return replace(row, numerics=args.numerics or row.numerics, host=args.host or row.host)


def _ran(scripts: _Scripts, args: argparse.Namespace) -> list[Experiment]:
    """Runs experiments one after the other, and prints progress to stderr."""
    from unstall.cli._progress import working
    from unstall.cli._recording import say
    from unstall.course.running import LIMIT_S
    from unstall.course.running import run as run_experiment

    gpu, quiet = _gpu(args), args.quiet
    found = []
    for number, (name, script) in enumerate(scripts, 1):
        with working(f"running {name}", quiet=quiet or len(scripts) > 1):
            found.append(run_experiment(script, _row(name, args), gpu, args.timeout or LIMIT_S))
        if len(scripts) > 1 and not quiet:
            held = "holds" if found[-1].holds else found[-1].failure or "does not hold"
            say(f"{number} of {len(scripts)}: {name}: {held}")
    return found


def _show(scripts: _Scripts) -> int:
    print("\n\n".join(script.read_text("utf-8").rstrip("\n") for _, script in scripts))
    return 0


def _copy(scripts: _Scripts, folder: Path) -> int:
    """Writes scripts and notebooks to a folder, and says how to run a copy."""
    from unstall.course.notebook import notebook
    from unstall.course.running import options
    from unstall.course.table import table

    files: dict[Path, bytes] = {}
    for name, script in scripts:
        source = script.read_bytes()
        files[folder / f"{name}.py"] = source
        files[folder / f"{name}.ipynb"] = notebook(name, table()[name], source.decode()).encode()
    _write(files)
    name = scripts[0][0]
    copy = shlex.quote(str(folder / f"{name if len(scripts) == 1 else 'NAME'}.py"))
    print(f"{counted(len(scripts), 'script')} in {folder}/, each also as a notebook. To run a changed script:")
    print(f"unstall course {copy}  # checks what should be seen")
    print("# a copy keeps its name: for another variant, copy to another folder")
    if len(scripts) == 1:
        print("# other verbs take the same options:")
        print(f"unstall run {' '.join(options(table()[name], _USUAL))} {copy}")
    return 0


def _write(files: Mapping[Path, bytes]) -> None:
    """Writes files. Raises UsageError, and writes nothing, if one of them is there and was changed."""
    from unstall.files import write_atomically

    for path, content in files.items():
        if path.exists() and path.read_bytes() != content:
            raise UsageError(f"{path} was changed, and would be lost: choose another folder")
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)


def _explain(scripts: _Scripts, args: argparse.Namespace) -> int:
    """Runs a script under `unstall run`, which explains it. A script of the package is copied to the current folder."""
    from unstall.cli import parse
    from unstall.cli.run import explain_run, run_program
    from unstall.course.running import needed, options
    from unstall.course.table import script

    if len(scripts) > 1:
        raise UsageError("--explain is about one experiment: unstall course NAME --explain")
    ((name, path),) = scripts
    row = _row(name, args)
    if missing := needed(row):
        raise UsageError(missing)
    gpu = _gpu(args)
    if path == script(name):
        path = Path(path.name)
        _write({path: script(name).read_bytes()})
    given = [] if gpu is None else [*options(row, gpu), "--after", "0"]
    given += [word for output in args.output for word in ("-o", output)]
    given += ["--format", args.format] if args.format else []
    given += ["--quiet"] if args.quiet else []
    again = parse(["run", *given, "--no-config", str(path)])
    return run_program(again, partial(explain_run, about=row.finding))
