"""Guesses which known word a user meant by an unknown word."""

from __future__ import annotations

from collections.abc import Iterable


def most_similar(word: str, known: Iterable[str], least: float = 0.6) -> str:
    """Returns the most similar of the words `known`; "" if none of them is similar to `word`. `least` is the ratio of
    difflib, from 0 to 1, from which on two words count as similar.
    """
    from difflib import get_close_matches  # here, since few words are unknown

    return next(iter(get_close_matches(word, list(known), 1, least)), "")


def suggestion(meant: object) -> str:
    """Returns the end of an error message, such as "; did you mean --steps?". Returns "" if `meant` is "" or None."""
    return f"; did you mean {meant}?" if meant else ""


def meant(word: str, known: Iterable[str]) -> str:
    """Returns the end of an error message: the suggestion of the most similar of the words `known`. Returns "" if none
    of them is similar to `word`.
    """
    return suggestion(most_similar(word, known))
