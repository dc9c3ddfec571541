"""Says what to type instead of a word that is no verb, or an argument that a verb does not know."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from unstall.cli._output import TRACES
from unstall.did_you_mean import meant

_BEFORE_WORDS = {"--edit": "an edit", "--vs": "another statement"}  # options that may be repeated, and what they take


_OF_TWO = ("diff",)  # verbs that take two inputs


def instead_of(unknown: Sequence[str], verb: str, options: Sequence[str]) -> str:
    """Returns a clause that says what to type instead of arguments that a verb does not know; "" if nothing is known.

    Args:
        unknown: The arguments, as typed.
        verb: The verb.
        options: The options of the verb.
    """
    if "--html" in unknown:
        return "; give -o a name with that ending: -o report.html"
    if all(word.lower().endswith(TRACES) for word in unknown):
        if verb in _OF_TWO:
            return "; of two jobs of many ranks, give each as a folder, or as a pattern in quotes"
        return "; unstall fleet takes the traces of all ranks of a job"
    for option, what in _BEFORE_WORDS.items():
        if option in options and not unknown[0].startswith("-"):
            return f"; {what} needs {option} before it: {option} {shlex.quote(unknown[0])}"
    return meant(unknown[0].partition("=")[0], options)


def what_to_type(word: str, verbs: Sequence[str]) -> str:
    """Returns a sentence that says what to type instead of `word`; "" if `word` is one of `verbs`.
    A verb is the first word after `unstall`, such as `run`.
    """
    if word in verbs:
        return ""
    if word.endswith(".py"):
        return f"{word} is a program, and no verb: unstall run {word}"
    if word.endswith((".json", ".json.gz", ".unstall")):
        return f"{word} is a file, and no verb: unstall explain {word}"
    if word.startswith("-"):
        return f"a verb comes first, then its options: unstall run {word} … SCRIPT"
    return f"{word!r} is no verb{meant(word, verbs) or '; unstall --help lists them'}"
