"""Finds the tensors that a source line uses, in the frames of a traceback.

Reads only shapes, types and devices of the tensors, because the host knows these. Their values
cannot be read from a failed device.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from unstall.blaming.result import Line, Tensor

_MOST = 12


def tensors_of(where: Line, traceback: TracebackType | None) -> tuple[Tensor, ...]:
    """Returns the tensors that the statement at the line `where` uses.

    The names in the statement are looked up in a frame of `traceback`: in the innermost frame of
    the function that contains the line.
    """
    frames = [frame for frame in _frames(traceback) if frame.f_code.co_filename == where.file]
    of_function = [frame for frame in frames if frame.f_code.co_qualname == where.function]
    if not of_function:
        return ()
    frame = of_function[-1]
    names = {**frame.f_globals, **frame.f_locals}
    found: dict[str, Tensor] = {}
    for path in _paths(where):
        for name, value in _values(path, names):
            if len(found) < _MOST:
                found.setdefault(name, _described(name, value))
    return tuple(found.values())


def last_user_line(traceback: TracebackType | None, is_users: Any) -> Line | None:
    """Returns the innermost line of the user's code in a traceback; None if there is no such line.

    Args:
        traceback: The traceback; None for no traceback.
        is_users: A function that takes the path of a file, and returns whether the file is the
            user's code.
    """
    found = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if is_users(code.co_filename):
            source = linecache.getline(code.co_filename, traceback.tb_lineno).strip()
            found = Line(code.co_filename, traceback.tb_lineno, code.co_qualname, source)
        traceback = traceback.tb_next
    return found


def _frames(traceback: TracebackType | None) -> Iterator[FrameType]:
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


def _paths(where: Line) -> list[tuple[str, ...]]:
    """Returns the names that the innermost statement on this line uses, split at dots: ("self", "weight")."""
    try:
        tree = ast.parse("".join(linecache.getlines(where.file)))
    except SyntaxError:
        return []
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= where.line <= (node.end_lineno or node.lineno)
    ]
    if not around:
        return []
    statement = min(around, key=lambda node: (node.end_lineno or node.lineno) - node.lineno)
    paths: dict[tuple[str, ...], None] = {}
    for node in ast.walk(statement):
        if isinstance(node, ast.Name | ast.Attribute) and (path := _path(node)):
            paths[path] = None
    return sorted(paths, key=len, reverse=True)


def _path(node: ast.expr) -> tuple[str, ...]:
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute) and (before := _path(node.value)):
        return (*before, node.attr)
    return ()


def _values(path: tuple[str, ...], names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the tensor whose dotted name is `path`, or the parameters of the module whose dotted name is `path`.

    Runs no code of the program.
    """
    torch = sys.modules["torch"]
    value = names.get(path[0])
    for name in path[1:]:
        held = {**vars(value)} if isinstance(value, torch.nn.Module) or hasattr(value, "__dict__") else {}
        for kind in ("_parameters", "_buffers", "_modules"):
            held.update(held.get(kind) or {})
        value = held.get(name)
    text = ".".join(path)
    if isinstance(value, torch.Tensor):
        yield text, value
    elif isinstance(value, torch.nn.Module):
        for name, parameter in value._parameters.items():
            if parameter is not None:
                yield f"{text}.{name}", parameter


def _described(name: str, tensor: Any) -> Tensor:
    return Tensor(name, tuple(map(int, tensor.shape)), str(tensor.dtype).removeprefix("torch."), str(tensor.device))
