"""Finds the experiments of the course that a user asks for: by a name, a number, the path of a copy, or words such as
"barrier" and "first iteration".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from unstall.course.table import names, numbers, script, table
from unstall.did_you_mean import most_similar, suggestion
from unstall.errors import UsageError

_WORD = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*")
_ENDINGS = ("ing", "ed")
_SHORTEST = 4  # letters, of what is left of a word without its ending
_TITLE, _WHOLE = 10, 1  # what a word counts in a title, and what more if it is the whole word
_NEAR = 0.75  # of difflib's ratio, from 0 to 1
_FEW = 3


def about(words: Sequence[str]) -> list[str]:
    """Returns the names of the experiments whose texts have all of `words`, in any order. Those with them in their
    titles come first, then the others by number. Beginnings of words will do, and singulars for plurals. Returns [] if
    there is no such experiment, or if `words` are only numbers.
    """
    asked = [stem for word in words for stem in _stems(word)]
    if all(stem.isdigit() for stem in asked):
        return []
    scores = {name: [_score(stem, *texts) for stem in asked] for name, texts in _texts().items()}
    found = [name for name, each in scores.items() if all(each)]
    return sorted(found, key=lambda name: -sum(scores[name]))


def name_of(word: str) -> str:
    """Returns the name of an experiment. `word` is the name itself, or the experiment's number.

    Raises:
        UsageError: There is no such experiment (see `refusal`).
    """
    if word in names():
        return word
    if word in numbers():
        return numbers()[word]
    raise refusal(word)


def refusal(word: str) -> UsageError:
    """Returns the error for a word that is no experiment. It names the nearest ones, or the nearest word of a text."""
    near = most_similar(word, names()) or " or ".join(about([word])[:_FEW])
    if not near and not word.isdigit():
        known = sorted({each for texts in _texts().values() for text in texts for each in text})
        near = most_similar(word.lower(), known, _NEAR)
    return UsageError(f"{word!r} is no experiment{suggestion(near)}; unstall course lists them")


def is_named(word: str) -> bool:
    """Returns whether `word` is the name or the number of an experiment."""
    return word in names() or word in numbers()


def chosen(word: str) -> tuple[str, Path]:
    """Returns the name of an experiment, and the path of its script.

    `word` is the name of the experiment, its number, or the path of a copy of its script. A copy has the name of the
    original.

    Raises:
        UsageError: There is no such experiment, or no such file, or the file is not text in UTF-8.
    """
    if not word.endswith(".py"):
        name = name_of(word)
        return name, script(name)
    copy = Path(word)
    if not copy.is_file():
        raise UsageError(f"{word} does not exist: unstall course NAME --copy FOLDER makes a copy")
    if copy.stem not in names():
        raise UsageError(f"{word} has the name of no experiment: a copy keeps its name")
    try:
        copy.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{word} cannot be read as text in UTF-8: {error}") from None
    return copy.stem, copy


def _stems(word: str) -> Iterator[str]:
    """Yields what a word of a text may begin with: "loss" and "item" for "loss.item()", "graph" for "graphs", "pin" for
    "pinned".
    """
    for each in _WORD.findall(word.lower()):
        joined = re.sub("[-_]", "", each)
        long = next((ending for ending in _ENDINGS if joined.endswith(ending)), "")
        if long and len(joined) - len(long) >= _SHORTEST:
            stem = joined.removesuffix(long)
            yield stem[:-1] if stem[-1] == stem[-2] else stem
        elif joined.endswith("s") and not joined.endswith("ss") and len(joined) >= _SHORTEST:
            yield joined[:-1]
        else:
            yield joined


def _score(stem: str, title: Sequence[str], text: Sequence[str]) -> int:
    in_title = sum(_TITLE + _WHOLE * (word == stem) for word in title if word.startswith(stem))
    return in_title + any(word.startswith(stem) for word in text)


@cache
def _texts() -> dict[str, tuple[list[str], list[str]]]:
    """Returns the words of each experiment's title, and of its other texts."""
    found = {}
    for name, row in table().items():
        said = [row.learn, row.mine, row.change, row.author.device if row.author else ""]
        said += [check.sentence for check in row.checks]
        found[name] = list(_words(f"{name.replace('_', ' ')} {row.question}")), list(_words(" ".join(said)))
    return found


def _words(text: str) -> Iterator[str]:
    """Yields the words of a text in small letters. "warm-up" is three words: "warm", "up" and "warmup"."""
    for each in _WORD.findall(text.lower()):
        parts = re.split("[-_]", each)
        yield from parts
        if len(parts) > 1:
            yield "".join(parts)
