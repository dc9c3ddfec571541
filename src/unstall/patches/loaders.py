"""Finds the calls `DataLoader(…)` that make the DataLoader over which a loop runs. Searches the
function that contains the loop, and the callers of this function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from unstall.patches.syntax import Loop, Module, keyword_of, names_in

_LOADER = "torch.utils.data.DataLoader"
_AROUND_A_LOADER = ("enumerate", "tqdm")


def loaders_around(module: Module, moves: list[ast.Call]) -> list[ast.Call]:
    """Returns the calls `DataLoader(…)` that make the DataLoader of the innermost loop around
    `moves`.

    There are several such calls if the loop's function gets its DataLoader by a parameter, and is
    called with different ones. Returns [] if one of the DataLoaders is not known. Also returns []
    if a call in `moves` copies something that is not a batch of the loop.

    Args:
        module: The file.
        moves: The calls in the loop that copy its batches to the device, such as `x.to(device)`.
    """
    loop = next((each for each in module.above(moves[0]) if isinstance(each, Loop)), None)
    if not isinstance(loop, ast.For):
        return []
    targets = names_in(loop.target)
    for move in moves:
        assert isinstance(move.func, ast.Attribute)
        if not names_in(move.func.value) <= targets:
            return []
    over = loop.iter
    if (
        isinstance(over, ast.Call)
        and isinstance(over.func, ast.Name)
        and over.func.id in _AROUND_A_LOADER
        and over.args
    ):
        over = over.args[0]
    if isinstance(over, ast.Call):
        return [over] if module.calls(over, _LOADER) else []
    if not isinstance(over, ast.Name):
        return []
    scope = module.scope(loop)
    passed = _passed(module, scope, over.id)
    made = [_made(module, scope, over.id)] if passed is None else [_made(module, *each) for each in passed]
    known = [each for each in made if each is not None]
    return list(dict.fromkeys(known)) if len(known) == len(made) else []


def _made(module: Module, scope: ast.AST, name: str) -> ast.Call | None:
    """Returns the call `DataLoader(…)` whose result the variable `name` of `scope` holds.

    Returns None if `scope` assigns the variable more than once, or assigns something else to it.
    """
    made = [
        node.value
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign | ast.AnnAssign) and name in _assigned(node)
    ]
    if len(made) != 1 or module.bound(scope).count(name) != 1:
        return None
    return made[0] if isinstance(made[0], ast.Call) and module.calls(made[0], _LOADER) else None


def _passed(module: Module, scope: ast.AST, name: str) -> list[tuple[ast.AST, str]] | None:
    """Returns, for each call of the function `scope`, the variable that the call passes as the
    parameter `name`.

    Returns:
        A list of `(caller, variable)`: the function (or the module) that contains the call, and the
        name of the variable. [] if some call passes something else than a variable. None if `scope`
        is not a function with this parameter.
    """
    if not isinstance(scope, ast.FunctionDef):
        return None
    parameters = [each.arg for each in (*scope.args.posonlyargs, *scope.args.args)]
    if name not in parameters:
        return None
    passed: list[tuple[ast.AST, str]] = []
    whole = module.bound(scope).count(name) == 1 and module.bound(module.tree).count(scope.name) == 1
    for call in _calls(module, scope.name) if whole else ():
        at = parameters.index(name)
        value = call.args[at] if at < len(call.args) else keyword_of(call, name)
        spread = any(isinstance(each, ast.Starred) for each in call.args)
        if spread or not isinstance(value, ast.Name):
            return []
        passed.append((module.scope(call), value.id))
    return passed


def _calls(module: Module, function: str) -> Iterator[ast.Call]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
            yield node


def _assigned(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}
