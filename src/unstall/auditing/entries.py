"""Reads which programs the user asked to audit: scripts, functions, and files that list programs."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import glob, has_magic
from pathlib import Path

from unstall.auditing.call import OFFER
from unstall.errors import UsageError

CALL = "unstall.auditing.call"
"""The module that calls a function of the user, in a process of its own."""
_FUNCTION = re.compile(r"[^:]+:[^:]+")


@dataclass(frozen=True, slots=True)
class Entry:
    """One program to audit. `name` is its name in the table. `program` has the words of its command
    line, after `unstall run`.
    """

    name: str
    program: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """A file or module that lists programs to audit, by its function `entries()`.

    Attributes:
        source: The file or module.
        pattern: A pattern with wildcards, such as "train_*". Only programs whose names match it are
            run.
    """

    source: str
    pattern: str = "*"

    def entries(self, names: Iterable[str]) -> list[Entry]:
        """Returns the programs to run: one for each of `names` that matches the pattern. `names`
        are the names that the file or module lists.

        Raises:
            UsageError: None of the names matches.
        """
        found = [function_entry(f"{self.source}:{name}") for name in names if fnmatchcase(name, self.pattern)]
        if not found:
            raise UsageError(f"{self.source}: its {OFFER}() offers nothing that matches {self.pattern!r}")
        return found


def function_entry(name: str) -> Entry:
    """Returns the program that calls a function in each step. `name` names the function in the form
    FILE_OR_MODULE:NAME.
    """
    return Entry(name, ("-m", CALL, name))


def asked_for(words: Iterable[str], files: Iterable[str]) -> list[Entry | Offer]:
    """Returns the programs to audit that a user names, and the files or modules that list such
    programs, without duplicates.

    Args:
        words: The words of the command line.
        files: Files that name one program in each line, in the syntax of a shell. Arguments for a
            script may follow the script, and # begins a comment.

    Raises:
        UsageError: A word is not the name of a script, a file or a function, or one of `files`
            cannot be read.
    """
    found: list[Entry | Offer] = [one for word in words for one in _entries(word, [])]
    for file in files:
        for number, line in enumerate(_lines(file), 1):
            try:
                first, *arguments = shlex.split(line, comments=True) or [""]
                found += _entries(first, arguments) if first else []
            except (UsageError, ValueError) as error:
                raise UsageError(f"{file}:{number}: {error}") from error
    return list(dict.fromkeys(found))


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"{file}: cannot be read: {reason}") from error


def _entries(word: str, arguments: list[str]) -> Iterator[Entry | Offer]:
    if _FUNCTION.fullmatch(word) and not Path(word).exists():
        if arguments:
            raise UsageError(f"{word}: a function takes no arguments, and {arguments[0]!r} comes after it")
        yield _function(word)
        return
    pattern = has_magic(word) and not Path(word).exists()
    paths = sorted(glob(word, recursive=True)) if pattern else [word]  # noqa: PTH207 - of any folder
    if not paths:
        raise UsageError(f"{word}: no file matches it")
    for path in paths:
        yield _script(path, arguments)


def _function(word: str) -> Entry | Offer:
    source, _, name = word.partition(":")
    if source.endswith(".py") and not Path(source).is_file():
        raise UsageError(f"{word}: there is no file {source}")
    return Offer(source, name) if has_magic(name) else function_entry(word)


def _script(path: str, arguments: list[str]) -> Entry | Offer:
    if not Path(path).is_file():
        instead = "" if path.endswith(".py") or "/" in path else f"; a function is named {path}:FUNCTION"
        raise UsageError(f"{path}: there is no such script{instead}")
    if not arguments and _offers(path):
        return Offer(path)
    return Entry(shlex.join([path, *arguments]) if arguments else path, (path, *arguments))


def _offers(path: str) -> bool:
    """Returns whether the file defines a function `entries` without parameters. Reads the file's syntax only, because
    running its imports may take seconds."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):  # then the script's own run tells what is wrong
        return False
    functions = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == OFFER]
    return any(not ast.unparse(each.args) for each in functions)
