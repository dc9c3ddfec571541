"""Lists what a shell suggests as the value of an argument: words, or files whose names have certain endings.

For example, the words of `--gpu` are the names of the GPUs, and `--gpu` also takes a file that ends with ".json".
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from unstall.errors import UsageError

FOLDER = "/"
"""The ending that makes a shell suggest folders instead of files."""
_TRACES = (".json", ".json.gz", ".unstall")
_FILES = {
    **dict.fromkeys(("SCRIPT", "ENTRY"), (".py",)),
    "--entries": (".txt",),
    **dict.fromkeys(("TRACE", "TRACES", "RESULT", "A", "B", "--against"), _TRACES),
    **dict.fromkeys(("--trace", "--save-trace", "recover TRACE"), (".json.gz", ".json")),
    "open FILE": (".html", *_TRACES),
    "--output": (".html", ".json", ".md", ".txt"),
    "--save-timeline": (".unstall",),
    **dict.fromkeys(("--gpu", "gpus NAME", "--baseline", "--save-baseline", "calibrate --output"), (".json",)),
    **dict.fromkeys(("--core", "--core-dump-to"), (".core", ".nvcudmp")),
    "blame RESULT": (".json",),
    "course EXPERIMENT": (".py",),
    "numbers --record": (".numbers",),
    **dict.fromkeys(("FOLDER", "--source", "--copy"), (FOLDER,)),
}


@dataclass(frozen=True, slots=True)
class Values:
    """What a shell suggests as the value of an argument: the words `words`, and files whose names
    end with one of `endings`.
    """

    words: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()

    def __add__(self, other: Values) -> Values:
        return Values(
            *(tuple(dict.fromkeys(a + b)) for a, b in ((self.words, other.words), (self.endings, other.endings)))
        )


def values_of(verb: str, action: argparse.Action) -> Values:
    """Returns what a shell suggests as the value of an argument of a verb.

    Args:
        verb: The verb, such as "run".
        action: The argument, as its parser has it.
    """
    names = [*action.option_strings, str(action.metavar)]
    keys = [f"{verb} {name}" for name in names] + names
    words = tuple(map(str, action.choices or ())) or next((tuple(_WORDS[key]()) for key in keys if key in _WORDS), ())
    return Values(words, next((_FILES[key] for key in keys if key in _FILES), ()))


def _gpus() -> list[str]:
    from unstall.virtual.costs.gpu_file import gpu_names

    return list(gpu_names())


def _edits() -> Iterator[str]:
    """Yields the names of edits. If an edit needs an argument, the edit's name ends with a colon."""
    from unstall.what_if.edits import names, parse

    for name in names():
        try:
            parse(name)
        except UsageError:
            yield f"{name}:"
        else:
            yield name


def _fleet_edits() -> Iterator[str]:
    """Yields the names of edits of a whole job, then those of single ranks."""
    from unstall.fleets.edits import NAMES, parse_edit

    for name in NAMES:
        try:
            parse_edit(name)
        except UsageError:
            yield f"{name}:"
        else:
            yield name
    yield from _edits()


def _findings() -> list[str]:
    """Returns the numbers of the findings that are listed at the end of a run."""
    from unstall.report.short import SHOWN

    return [str(number) for number in range(1, SHOWN + 1)]


def _experiments() -> list[str]:
    from unstall.course.table import names

    return ["all", *names()]


_WORDS: dict[str, Callable[[], list[str] | Iterator[str]]] = {
    **dict.fromkeys(("--gpu", "gpus NAME"), _gpus),
    "fleet --edit": _fleet_edits,
    "--edit": _edits,
    "--on": lambda: ["ray"],
    "show N": _findings,
    "course EXPERIMENT": _experiments,
}
