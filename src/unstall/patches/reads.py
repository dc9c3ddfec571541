"""Values that a loop reads one by one and only adds up or collects: kept on the device, and read after the loop."""

from __future__ import annotations

import ast

from unstall.patches.syntax import SCOPES, Edit, Loop, Module, names_in

_NOTE = (
    "the values are read once after the loop and added in the same order, so the sum is the same to the last bit; "
    "the tensors must be on one device, and nothing may write to them while they are kept"
)


def read_after_the_loop(module: Module, line: int) -> tuple[list[Edit], str] | str:
    """Changes `total += loss.item()` and `losses.append(loss.item())` in a loop."""
    read = _read(module, line)
    if isinstance(read, str):
        return read
    statement = module.statement(read)
    held = _accumulator(statement)
    if held is None:
        return "the value is used at once: only total += x.item() and values.append(x.item()) in a loop are changed"
    above = list(module.above(statement))
    loop = next((each for each in above if isinstance(each, (*SCOPES, Loop))), None)
    if not isinstance(loop, Loop):
        return "the line is in no loop of its function"
    if why := _unsafe(module, loop, statement, read, held):
        return why
    return _edits(module, loop, statement, read)


def _read(module: Module, line: int) -> ast.Call | str:
    """Returns the x.item() at a line; why not, if there is not exactly one."""
    reads = [
        call
        for call in module.at(line, ast.Call)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "item" and not (call.args or call.keywords)
    ]
    if len(reads) != 1:
        return "the line does not read exactly one value with .item()"
    return reads[0]


def _accumulator(statement: ast.stmt) -> str | None:
    """Returns the name of what a statement adds to: total of `total += …`, losses of `losses.append(…)`."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
        return statement.target.id if isinstance(statement.target, ast.Name) else None
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or len(call.args) != 1 or call.keywords:
        return None
    func = call.func
    appends = isinstance(func, ast.Attribute) and func.attr == "append" and isinstance(func.value, ast.Name)
    return func.value.id if appends else None  # type: ignore[attr-defined]


def _unsafe(module: Module, loop: Loop, statement: ast.stmt, read: ast.Call, held: str) -> str:
    """Returns why the values cannot be read after the loop; empty if they can."""
    if (
        module.indent(statement) is None
        or module.line_end(statement) is None
        or None
        in (
            module.indent(loop),
            module.line_end(loop),
        )
    ):
        return "other statements stand on its line"
    inside = list(ast.walk(loop))
    if any(isinstance(node, ast.Return | ast.Yield | ast.YieldFrom | ast.Await | ast.Raise) for node in inside):
        return "the loop may be left by a return, yield or raise, before the values would be read"
    if any(isinstance(each, ast.Try | ast.TryStar) for each in module.above(statement)):
        return "an exception that is caught around the line would lose the values"
    mine = set(map(id, ast.walk(statement)))
    others = [node for node in inside if isinstance(node, ast.Name) and node.id == held and id(node) not in mine]
    if others:
        return f"{held} is used in the loop as well, on line {others[0].lineno}"
    scope = module.scope(statement)
    if any(isinstance(node, ast.Global | ast.Nonlocal) and held in node.names for node in ast.walk(scope)):
        return f"{held} belongs to another scope"
    inner = (node for node in ast.walk(scope) if isinstance(node, SCOPES) and node is not scope)
    if any(held in names_in(each) for each in inner):
        return f"a function in the same scope uses {held}, and may be called in the loop"
    beside = _beside(statement, read) - {held}
    if changed := beside & set(module.bound(loop)):
        return f"{min(changed)} changes in the loop, and the value is combined with it at once"
    if any(isinstance(node, ast.Call) and node is not read for node in _outside(statement, read)):
        return "the value is passed on at once"
    if not _torch(module):
        return "the file has no `import torch` of its own"
    return ""


def _outside(statement: ast.stmt, read: ast.Call) -> list[ast.AST]:
    """Returns the nodes of the statement's value beside the read. The call of append is none of them."""
    value: ast.AST = statement.value if isinstance(statement, ast.AugAssign) else statement.value.args[0]  # type: ignore[attr-defined]
    mine = set(map(id, ast.walk(read)))
    return [node for node in ast.walk(value) if id(node) not in mine]


def _beside(statement: ast.stmt, read: ast.Call) -> set[str]:
    return {node.id for node in _outside(statement, read) if isinstance(node, ast.Name)}


def _torch(module: Module) -> str:
    """Returns the name under which the whole module knows torch."""
    for node in module.tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name
                if alias.name == "torch" and name not in module.bound(module.tree):
                    return name
    return ""


def _edits(module: Module, loop: Loop, statement: ast.stmt, read: ast.Call) -> tuple[list[Edit], str]:
    assert isinstance(read.func, ast.Attribute)
    taken = names_in(module.tree) | set(module.bound(module.tree))
    kept, value = _free("kept", taken), _free("value", taken)
    outer, end = module.indent(loop), module.line_end(loop)
    assert outer is not None
    assert end is not None
    newline = module.newline()
    torch, tensor = _torch(module), module.source(read.func.value)
    start, stop = module.span(statement)
    at, to = module.span(read)
    later = module.data[start:at].decode() + value + module.data[to:stop].decode()
    opening = "" if module.data[:end].endswith(b"\n") else newline
    within = _step(module, loop, outer)
    drained = (
        f"{opening}{outer}for {value} in {torch}.stack({kept}).flatten().tolist() if {kept} else []:{newline}"
        f"{outer}{within}{later}{newline}"
    )
    before = module.span(loop)[0]
    return [
        Edit(before, before, f"{kept} = []{newline}{outer}"),
        Edit(start, stop, f"{kept}.append({tensor}.detach())"),
        Edit(end, end, drained),
    ], _NOTE


def _step(module: Module, loop: Loop, outer: str) -> str:
    """Returns by how much the file indents: what the loop's body has beyond the loop."""
    indent = module.indent(loop.body[0])
    return indent[len(outer) :] if indent and indent.startswith(outer) and len(indent) > len(outer) else "    "


def _free(name: str, taken: set[str]) -> str:
    return next(each for each in (name, *(f"{name}_{number}" for number in range(2, 1000))) if each not in taken)
