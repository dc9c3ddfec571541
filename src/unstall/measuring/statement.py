"""Makes functions that can be measured of statements, which come as text from a command line or a notebook."""

from __future__ import annotations

import ast
import builtins
import textwrap
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from unstall.errors import UnstallError, UsageError

_MODULES = {
    "F": "torch.nn.functional",
    "cp": "cupy",
    "cupy": "cupy",
    "jax": "jax",
    "jnp": "jax.numpy",
    "math": "math",
    "nn": "torch.nn",
    "np": "numpy",
    "numpy": "numpy",
    "torch": "torch",
}
"""Maps well-known names to modules. A module is imported if a statement or the setup uses its name,
and the name is not yet defined.
"""


def functions(statements: Sequence[str], setup: str, names: dict[str, object]) -> dict[str, Callable[[], object]]:
    """Returns a dict from each statement's text to a function that runs the statement. Runs the
    setup once.

    If a statement ends in an expression, its function returns the expression's value. Well-known
    modules such as `np` are imported if a statement or the setup uses their names.

    Args:
        statements: The texts of the statements.
        setup: Code that runs before all statements.
        names: The globals of the setup and of all statements.

    Raises:
        UsageError: A text is not valid Python, two statements are equal, or the setup fails.
    """
    trees = [_parsed(setup, "the setup"), *(_parsed(each, each) for each in statements)]
    _import_known(trees, names)
    with errors_as_usage("the setup fails"):
        exec(compile(trees[0], "<setup>", "exec"), names)
    made = {_short(text): _function(tree, names) for text, tree in zip(statements, trees[1:], strict=True)}
    if len(made) < len(statements):
        raise UsageError("a statement is there twice: give each another text, such as a comment at its end")
    return made


@contextmanager
def errors_as_usage(text: str) -> Iterator[None]:
    """Returns a context manager that converts an exception of its block to a UsageError. The
    message begins with `text`, the text of the statement that the block runs. An UnstallError is
    not converted.
    """
    try:
        yield
    except UnstallError:
        raise
    except (Exception, SystemExit) as error:
        raise _as_usage(text, error) from error


@contextmanager
def errors_as_usage_of(functions: Mapping[str, Callable[[], object]]) -> Iterator[None]:
    """Returns a context manager that converts an exception of its block to a UsageError if one of
    `functions` raised it. The message begins with the key of this function: the text of its
    statement. An UnstallError is not converted.
    """
    try:
        yield
    except UnstallError:
        raise
    except (Exception, SystemExit) as error:
        within = {frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)}
        for text, function in functions.items():
            if getattr(function, "__code__", None) in within:
                raise _as_usage(text, error) from error
        raise


def _as_usage(text: str, error: BaseException) -> UsageError:
    said = ": ".join(part for part in (type(error).__name__, str(error)) if part)
    if isinstance(error, SystemExit):
        return UsageError(f"{text}: it ends the program, by {said}: what is measured must return")
    return UsageError(f"{text}: {said}")


def _parsed(source: str, what: str) -> ast.Module:
    try:
        return ast.parse(textwrap.dedent(source).strip())
    except SyntaxError as error:
        raise UsageError(f"{what}: {error.msg}, in line {error.lineno}: {(error.text or '').strip()}") from error


def _function(tree: ast.Module, names: dict[str, object]) -> Callable[[], object]:
    body: list[ast.stmt] = list(tree.body) or [ast.Pass()]
    if isinstance(body[-1], ast.Expr):
        body[-1] = ast.copy_location(ast.Return(body[-1].value), body[-1])
    made = ast.parse("def statement(): pass")
    definition = made.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.body = body
    found: dict[str, Callable[[], object]] = {}
    # Defined apart, so that the name hides none of the user's; its globals are theirs all the same.
    exec(compile(ast.fix_missing_locations(made), "<statement>", "exec"), names, found)
    return found["statement"]


def _import_known(trees: Sequence[ast.Module], names: dict[str, Any]) -> None:
    nodes = [node for tree in trees for node in ast.walk(tree)]
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    for name in sorted(used & _MODULES.keys()):
        if name in names or hasattr(builtins, name):
            continue
        try:
            names[name] = import_module(_MODULES[name])
        except ImportError:  # the name may be the setup's own; if not, Python says so
            continue


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:59]}…"
