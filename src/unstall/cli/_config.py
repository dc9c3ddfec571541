"""`[tool.unstall]` of pyproject.toml: defaults for the options of `unstall run`, and budgets for `unstall check`.

unstall looks for a pyproject.toml with this table in the current folder, then in its parent folders. The nearest file
counts, as for ruff. The file is untrusted: its size is limited, and no file that it names is opened here.
"""

from __future__ import annotations

import argparse
import os
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unstall.did_you_mean import meant
from unstall.document.plain import short
from unstall.errors import UsageError

FILE, TABLE = "pyproject.toml", "tool.unstall"
MAX_BYTES = 1 << 20
BUDGET = "budget"
"""The key of the table of budgets in the table [tool.unstall]."""
_NOT_HERE = ("help", "no-config")
_KINDS = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "a table"}


@dataclass(frozen=True, slots=True)
class Config:
    """The table [tool.unstall] of a pyproject.toml. `file` is the path of the pyproject.toml,
    relative to the current folder. `table` has the keys and values.
    """

    file: str
    table: Mapping[str, Any]


def configure(args: argparse.Namespace) -> str | None:
    """Sets options of a command to the values that pyproject.toml gives, except for options that
    are on the command line.

    Keys in `args.not_configured` are ignored: they are options of `unstall run` that the command
    does not have.

    Args:
        args: The parsed arguments, which are changed.

    Returns:
        A sentence that lists the options that were set; None if none were set.

    Raises:
        UsageError: The pyproject.toml is broken, or has an unknown key or a wrong value.
    """
    config = None if args.no_config else find()
    if config is None:
        return None
    used = []
    given = given_in(args)
    for action, value in _options(args.parser, config, (BUDGET, *getattr(args, "not_configured", ()))):
        if not given & {each.dest for each in _exclusive(args.parser, action)} and value != action.default:
            setattr(args, action.dest, value)
            used += _words(action, value)
    return f"options from {config.file}: {shlex.join(used)}" if used else None


def find() -> Config | None:
    """Returns the table [tool.unstall] of the nearest pyproject.toml that has this table; None if
    no such file has it.

    Looks in the current folder, then in its parents.

    Raises:
        UsageError: A pyproject.toml with this table is broken.
    """
    try:
        here = Path.cwd()
    except OSError:  # the folder was removed
        return None
    for folder in (here, *here.parents):
        data = _read(folder / FILE)
        if b"unstall" not in data:
            continue
        file = os.path.relpath(folder / FILE, here)
        table = _table(data, file)
        if table is not None:
            return Config(file, table)
    return None


def _read(path: Path) -> bytes:
    """Returns the content of a regular file, and b"" for anything else.

    Reads at most one byte more than is allowed, so that the caller notices if the file is too large.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe is not waited for
    except OSError:
        return b""
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        return b""
    with os.fdopen(handle, "rb") as file:
        return file.read(MAX_BYTES + 1)


def _table(data: bytes, file: str) -> Mapping[str, Any] | None:
    """Returns the table [tool.unstall] of a TOML file, or None if the file has no such table."""
    import tomllib

    if len(data) > MAX_BYTES:
        raise UsageError(f"{file}: larger than {MAX_BYTES >> 20} MiB")
    try:
        tool = tomllib.loads(data.decode()).get("tool")
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file}: cannot be read: {error}") from error
    table = tool.get("unstall") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{file}: tool.unstall is {_kind(table)}: make it a table, [{TABLE}]")
    return table


def given_in(args: argparse.Namespace) -> set[str]:
    """Returns the arguments that were given on the command line, by the names of their attributes (`dest`)."""
    parser: argparse.ArgumentParser = args.parser
    defaults = [(action, action.default) for action in parser._actions]
    try:
        for action, _ in defaults:
            action.default = argparse.SUPPRESS
        given = set(vars(parser.parse_known_args(args.words[1:])[0]))
        return given & {action.dest for action, _ in defaults}
    finally:
        for action, default in defaults:
            action.default = default


def budgets() -> tuple[Mapping[str, Any], str]:
    """Returns `(table, name)`: the table of budgets in the nearest pyproject.toml; its name for
    error messages, such as "pyproject.toml: [tool.unstall.budget]".

    Raises:
        UsageError: The pyproject.toml is broken.
    """
    config = find()
    table = config.table.get(BUDGET, {}) if config else {}
    about = f"{config.file if config else FILE}: [{TABLE}.{BUDGET}]"
    if not isinstance(table, dict):
        raise UsageError(f"{about}: is {_kind(table)}: make it a table")
    return table, about


def _options(
    parser: argparse.ArgumentParser, config: Config, others: Sequence[str]
) -> Iterator[tuple[argparse.Action, Any]]:
    """Yields (option, value) for each key of the table, except for the keys in `others`.

    Raises UsageError if a key or a value is wrong.
    """
    known = {name[2:]: action for action in parser._actions for name in action.option_strings if name.startswith("--")}
    known = {name: action for name, action in known.items() if name not in _NOT_HERE}
    seen: dict[str, str] = {}
    for key, value in config.table.items():
        if key in others:
            continue
        about = f"{config.file}: [{TABLE}] {short(key)}"
        if key not in known:
            raise UsageError(f"{about}: unstall run has no such option{meant(key, known)}")
        action = known[key]
        for each in _exclusive(parser, action):
            if each.dest in seen:
                raise UsageError(f"{about}: excludes {seen[each.dest]}: keep one of them")
        seen[action.dest] = key
        try:
            yield action, _value(action, value)
        except UsageError as error:
            raise UsageError(f"{about}: {str(error).removeprefix(f'--{key}: ')}") from error


def _exclusive(parser: argparse.ArgumentParser, action: argparse.Action) -> list[argparse.Action]:
    """Returns the option, and all options that cannot be given together with it."""
    groups = [group._group_actions for group in parser._mutually_exclusive_groups if action in group._group_actions]
    return groups[0] if groups else [action]


def _value(action: argparse.Action, value: object) -> Any:
    """Converts a value of TOML to the value that the command line's parser would return. Raises UsageError for a wrong
    type.
    """
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise UsageError(f"is {_kind(value)}: give true or false")
        return action.const if value else action.default
    if isinstance(action, argparse._AppendAction):
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(each, str) for each in values):
            raise UsageError(f"is {_kind(value)}: give text in quotes, or a list of such")
        return values
    parse = action.type if callable(action.type) else str
    number = not isinstance(parse("1"), str)
    if isinstance(value, bool) or not isinstance(value, (int, float) if number else str):
        raise UsageError(f"is {_kind(value)}: give {'a number' if number else 'text in quotes'}")
    try:
        text = str(value)
    except ValueError as error:  # more digits than Python prints
        raise UsageError("is too large") from error
    if action.choices and text not in action.choices:
        raise UsageError(f"is none of {', '.join(action.choices)}{meant(text, action.choices)}")
    return parse(text)


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "a date or a time")


def _words(action: argparse.Action, value: Any) -> list[str]:
    """Returns the words that set the option to this value on a command line."""
    name = next(each for each in action.option_strings if each.startswith("--"))
    if action.nargs == 0:
        return [name]
    return [word for each in (value if isinstance(value, list) else [value]) for word in (name, str(each))]
