"""Finds the experiments of the course that a user asks for: by a name, a number, the path of a copy, or words such as
"barrier", "first iteration", or a whole question.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from unstall.course.table import names, numbers, script, table
from unstall.did_you_mean import most_similar, suggestion
from unstall.errors import UsageError

_WORD = re.compile(r"\d+\.\d+|c\+\+|[a-z0-9]+(?:[-_][a-z0-9]+)*")
_ENDINGS = ("ing", "ed")
_SHORTEST = 4  # letters, of what is left of a word without its ending
_BEGINNING = 3  # letters, of the shortest word that finds longer ones which begin with it
_TITLE, _MORE = 2, 0.5  # how often a word counts in a title; what more if it is the whole word, or there twice
_ENOUGH = 0.5  # of the best score: others are left out
_SEVERAL = 5  # experiments that are found at most, unless more are as good as the best
_NEAR, _TYPO = 0.82, 5  # difflib's ratio, from 0 to 1, and the letters of the shortest word that is taken for a typo
_FEW = 3


def about(words: Sequence[str]) -> list[str]:
    """Returns the names of the experiments whose texts have most of `words`, the best first: about five at most.

    The fewer experiments have a word, the more it counts; in a title it counts more. Beginnings of words will do, and
    singulars for plurals. Returns [] if no experiment has one of the words, or if `words` are only numbers.
    """
    asked = dict.fromkeys(stem for word in words for stem in _stems(word))
    if all(stem.isdigit() for stem in asked):
        return []
    asked = {stem: None for stem in asked if len(stem) >= _BEGINNING} or asked  # "is" and "to" only if there is no more
    scores = dict.fromkeys(_texts(), 0.0)
    for stem in asked:
        having = {name: count for name, texts in _texts().items() if (count := _count(stem, *texts))}
        rare = math.log((1 + len(scores)) / (1 + len(having)))
        for name, count in having.items():
            scores[name] += rare * count
    found = sorted((name for name, score in scores.items() if score), key=lambda name: -scores[name])
    best = [scores[name] for name in found]
    least = _ENOUGH * best[0] if best else 0.0
    sixth = best[_SEVERAL] if len(best) > _SEVERAL else 0.0
    return [name for name in found if scores[name] == best[0] or (scores[name] > sixth and scores[name] >= least)]


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
    near = most_similar(word, names()) or " or ".join(about([word])[:_FEW]) or _meant(word)
    return UsageError(f"{word!r} is no experiment{suggestion(near)}; unstall course lists them")


def nothing_about(words: Sequence[str]) -> UsageError:
    """Returns the error for words that no experiment has. It names the nearest word of a text, if one is near. A single
    word that is a number, or nearly the name of an experiment, is refused as no experiment.
    """
    asked = " ".join(words)
    if len(words) == 1 and (most_similar(asked, names()) or not re.search("[a-z]", asked.lower())):
        return refusal(asked)
    near = next(filter(None, map(_meant, words)), "")
    return UsageError(f"no experiment is about {asked!r}{suggestion(near)}; unstall course lists them")


def _meant(word: str) -> str:
    """Returns the word of a text for which `word` is probably a typo; "" if there is none."""
    known = {each for texts in _texts().values() for text in texts for each in text if len(each) >= _TYPO}
    return most_similar(word.lower(), sorted(known), _NEAR) if len(word) >= _TYPO else ""


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


def _count(stem: str, title: Sequence[str], text: Sequence[str]) -> float:
    """Returns how much a word counts in an experiment; 0 if the experiment does not have it."""
    for words, times in ((title, _TITLE), (text, 1)):
        if found := [word == stem for word in words if _finds(stem, word)]:
            return times + _MORE * (any(found) + (words is title and len(found) > 1))
    return 0


def _finds(stem: str, word: str) -> bool:
    return word.startswith(stem) if len(stem) >= _BEGINNING else word == stem


@cache
def _texts() -> dict[str, tuple[list[str], list[str]]]:
    """Returns the words of each experiment's title, and of its other texts."""
    found = {}
    for name, row in table().items():
        said = [row.learn, row.mine, row.change, row.searched, row.author.device if row.author else ""]
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
