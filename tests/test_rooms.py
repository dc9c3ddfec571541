"""The table of rooms in ARCHITECTURE.md is what the code does: who imports whom, torch and other packages included.

Every import counts: at the top of a file, within a function, for types only, and by a string that names a module. So do
those by C, of modules whose functions are handed over.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

PACKAGE = "unstall"
ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / PACKAGE
_ROW = re.compile(r"^\| `(?P<room>[\w/.]+)` \|[^|]*\| (?P<imports>[^|]*) \|$", re.MULTILINE)
_CYCLE = re.compile(r"^- (?P<files>`[\w/.]+`(?:, `[\w/.]+`)+): ", re.MULTILINE)
_NAMED = re.compile(r"`([\w/.-]+)`")
_BY_C = {"driver/_pointers.h": "unstall.driver._pointers"}  # who includes it imports that module
_DOOR = "__init__"
_NESTED = ("course/experiments",)  # scripts as users write them, which import the door

Modules = Mapping[str, ast.Module]
"""By dotted name below the package: "replay.engine"; a package's own file by the package's name."""


def test_no_room_imports_what_the_table_does_not_allow(modules: Modules, allowed: Mapping[str, set[str]]) -> None:
    assert list(_forbidden(modules, allowed)) == []


def test_no_room_is_missing_from_the_table_and_none_is_invented(
    modules: Modules, allowed: Mapping[str, set[str]]
) -> None:
    assert {_room(name) for name in modules} == set(allowed)


def test_the_table_allows_nothing_that_no_code_needs(modules: Modules, allowed: Mapping[str, set[str]]) -> None:
    used: dict[str, set[str]] = {room: set() for room in allowed}
    for name, tree in modules.items():
        used[_room(name)] |= {_target(each) for each in _imports(name, tree, modules)}
    assert {room: sorted(allowed[room] - used[room]) for room in allowed if allowed[room] - used[room]} == {}


def test_no_cycle_across_rooms(allowed: Mapping[str, set[str]]) -> None:
    assert _cycles({room: {other for other in allowed[room] if other in allowed} for room in allowed}) == []


def test_no_cycle_within_a_room_without_a_reason(modules: Modules) -> None:
    graph = {
        name: {each for each in _imports(name, tree, modules) if each in modules} for name, tree in modules.items()
    }
    text = (ROOT / "ARCHITECTURE.md").read_text()
    explained = {
        frozenset(_module(Path(file)) for file in _NAMED.findall(row["files"])) for row in _CYCLE.finditer(text)
    }
    assert {frozenset(cycle) for cycle in _cycles(graph)} == explained


@pytest.mark.parametrize(
    "statement",
    [
        "from {module} import anything",
        "import {module}",
        "def lazily() -> None:\n    from {module} import anything",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from {module} import anything",
        "from importlib import import_module\nimport_module('{module}')",
        "import sys\nsys.modules.get('{module}')",
    ],
)
def test_any_forbidden_import_that_is_added_is_found(
    statement: str, modules: Modules, allowed: Mapping[str, set[str]]
) -> None:
    missed = []
    first = {room: next(name for name in sorted(modules) if _room(name) == room) for room in allowed}
    for room, module in first.items():
        for other in {*allowed, "torch"} - allowed[room] - {room, _DOOR}:
            target = f"{PACKAGE}.{first[other]}" if other in first else other
            if other not in first and "'" in statement:
                continue  # a string may name a module of torch, which is then looked for and not imported
            changed = _with(modules[module], statement.format(module=target))
            if not any(
                f"{room} imports {other}:" in found for found in _forbidden_in(module, changed, modules, allowed)
            ):
                missed.append((room, other))
    assert missed == []


@pytest.fixture(scope="module")
def modules() -> Modules:
    files = [path for path in SOURCES.rglob("*.py") if "_bootstrap" not in path.parts]
    by_python = {_module(path.relative_to(SOURCES)): ast.parse(path.read_text()) for path in files}
    by_c = {
        _module(path.relative_to(SOURCES)): ast.parse("\n".join(f"import {module}" for module in imported))
        for path in SOURCES.rglob("*.c")
        if (imported := [module for header, module in _BY_C.items() if f'"../{header}"' in path.read_text()])
    }
    return by_python | by_c


@pytest.fixture(scope="module")
def allowed() -> Mapping[str, set[str]]:
    """By room the rooms and packages that the table lets it import."""
    rows = _ROW.finditer((ROOT / "ARCHITECTURE.md").read_text())
    table = {row["room"].removesuffix(".py").rstrip("/"): set(_NAMED.findall(row["imports"])) for row in rows}
    everything = {*table} - {"cli", _DOOR}
    return {
        room: {name.removesuffix(".py") for name in names}
        | (everything if "everything" in names else set()) - {"everything"}
        for room, names in table.items()
    }


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _room(module: str) -> str:
    """The door is the package's own few files. A folder in a room is a room if it has a row of its own."""
    top = module.partition(".")[0]
    within = next((room for room in _NESTED if module.startswith(f"{room.replace('/', '.')}.")), top)
    return _DOOR if top in ("__main__", "_api") else within


def _target(name: str) -> str:
    return name if name in sys.stdlib_module_names else _room(name)


def _forbidden(modules: Modules, allowed: Mapping[str, set[str]]) -> Iterator[str]:
    for name, tree in modules.items():
        yield from _forbidden_in(name, tree, modules, allowed)


def _forbidden_in(name: str, tree: ast.Module, modules: Modules, allowed: Mapping[str, set[str]]) -> Iterator[str]:
    room = _room(name)
    for imported in sorted(_imports(name, tree, modules)):
        other = _room(imported) if imported in modules else imported
        if other != room and other not in allowed.get(room, set()):
            yield f"{room} imports {other}: {name} → {imported}"


def _imports(name: str, tree: ast.Module, modules: Modules) -> set[str]:
    """The package's modules, below the package, and the top names of others, without the standard library's."""
    found: set[str] = set()
    for dotted in _dotted(tree, modules):
        top, _, below = dotted.partition(".")
        if top == PACKAGE:
            while below and below not in modules:  # the last part is a name in a module
                below = below.rpartition(".")[0]
            found.add(below or _DOOR)
        elif top not in sys.stdlib_module_names and not top.startswith("_"):
            found.add(top)
    return found - {name}


def _dotted(tree: ast.Module, modules: Modules) -> Iterator[str]:
    """Dotted names of all that is imported, and of strings that name a module of the package."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module)):
                yield from (f"{module}.{alias.name}" for alias in node.names)
            case ast.Constant(value=str(text)) if text.removeprefix(f"{PACKAGE}.") in modules and "." in text:
                yield text
            case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]) if re.match(rf"{PACKAGE}\.\w+\.", text):
                yield text.rpartition(".")[0]
            case ast.Call(func=ast.Name(id="import_module"), args=[ast.Constant(value=str(text)), *_]):
                yield text


def _with(tree: ast.Module, statement: str) -> ast.Module:
    return ast.Module([*tree.body, *ast.parse(statement).body], [])


def _cycles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The strongly connected components of more than one node, by mutual reachability."""
    reached = {node: _reachable(graph, node) for node in graph}
    components = {frozenset(other for other in reached[node] if node in reached.get(other, ())) for node in graph}
    return sorted(sorted(component) for component in components if len(component) > 1)


def _reachable(graph: Mapping[str, Iterable[str]], start: str) -> set[str]:
    found: set[str] = set()
    ahead = list(graph[start])
    while ahead:
        node = ahead.pop()
        if node not in found:
            found.add(node)
            ahead.extend(graph.get(node, ()))
    return found
