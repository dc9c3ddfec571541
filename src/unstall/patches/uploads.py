"""Improves copies to the device: pinned memory and no waiting, or no copy if the tensor can be made on the device."""

from __future__ import annotations

import ast

from unstall.patches.syntax import Edit, Loop, Module, keyword_of, names_in

_LOADER = "torch.utils.data.DataLoader"
# Their values are the same on every device. Random ones are not, nor are those that are rounded as they are made.
_FACTORIES = ("torch.zeros", "torch.ones", "torch.full", "torch.empty", "torch.eye")
_RANDOM = ("torch.rand", "torch.randn", "torch.randint", "torch.randperm")
_NOT_MOVED = ("requires_grad", "pin_memory", "out", "device")
_AROUND_A_LOADER = ("enumerate", "tqdm")
_BEFORE_PIN_MEMORY = 7  # parameters of DataLoader that stand before it
_OF_PINNED = (
    "it copies without waiting only from pinned memory, which must not be overwritten before the copy has ended"
)
_NO_WORKERS = "; without workers (num_workers=0) the loop's own thread pins each batch: give it num_workers too"


def uploaded(module: Module, line: int) -> tuple[list[Edit], str] | str:
    """Makes a tensor on the device, or copies it without waiting and pins the batches of its DataLoader."""
    moves = [call for call in module.at(line, ast.Call) if call.lineno == line and _is_move(call)]
    if not moves:
        return "the line is not of the form x.to(device) or x.cuda()"
    edits, notes = [], []
    for call in moves:
        made = _made(module, call)
        if isinstance(made, str):
            return made
        edits += made
    if not edits:
        waiting = [call for call in moves if keyword_of(call, "non_blocking") is None and len(call.args) < 2]
        if not waiting:
            return "its copies are non_blocking=True already: the source is what to pin"
        if any(_may_be_a_module(module, call) for call in waiting):
            return "x.cuda() of a module takes no non_blocking=True, and x may be one: write x.to(device)"
        edits = [module.with_argument(call, "non_blocking=True") for call in waiting]
        pinned, note = _pinned(module, waiting)
        edits += pinned
        notes = [_OF_PINNED if note is None else note]
    return edits, " ".join(notes)


def made_on_device(module: Module, line: int) -> tuple[list[Edit], str] | str:
    """Makes a constant on the device: torch.tensor(0.5, device=…) copies it there, torch.full does not."""
    made = [call for call in module.at(line, ast.Call) if module.calls(call, "torch.tensor", "torch.as_tensor")]
    edits = [edit for call in made if (edit := _filled(module, call)) is not None]
    if not made or len(edits) != len(made):
        return "the line is not of the form torch.tensor(NUMBER, device=…): its values may be others each time"
    return edits, ""


def _is_move(call: ast.Call) -> bool:
    """Returns whether a call is x.to(device) or x.cuda(), as far as its form tells."""
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr == "cuda":
        return not call.args
    if call.func.attr != "to" or any(keyword.arg is None for keyword in call.keywords):
        return False
    return len(call.args) == 1 and _is_device(call.args[0])


def _may_be_a_module(module: Module, move: ast.Call) -> bool:
    """Returns whether it is x.cuda(), and x is not what the loop around it yields."""
    assert isinstance(move.func, ast.Attribute)
    if move.func.attr != "cuda":
        return False
    loop = next((each for each in module.above(move) if isinstance(each, ast.For)), None)
    return loop is None or not names_in(move.func.value) <= names_in(loop.target)


def _is_device(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.startswith("cuda")
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return "device" in name.lower() or name.lower() == "dev"


def _made(module: Module, move: ast.Call) -> list[Edit] | str:
    """Edits that make the tensor on the device, if it is one that is made on the spot; why not, if they cannot be."""
    assert isinstance(move.func, ast.Attribute)
    make = move.func.value
    if not isinstance(make, ast.Call):
        return []
    name = module.dotted(make.func)
    if name in _RANDOM:
        return f"{name} draws from the CPU's generator: made on the device, it would draw other numbers"
    plain = not any(keyword.arg is None or keyword.arg in _NOT_MOVED for keyword in make.keywords)
    if name not in (*_FACTORIES, "torch.tensor") or not plain or move.keywords:
        return []
    device = module.source(move.args[0]) if move.args else '"cuda"'
    (_, inner), (_, outer) = module.span(make), module.span(move)
    gone = Edit(inner, outer, "")
    if name != "torch.tensor":
        return [module.with_argument(make, f"device={device}"), gone]
    value = _number(make)
    if value is None:
        return []
    start, end = module.span(make.args[0])
    return [
        _named_full(module, make),
        Edit(start, end, f"(), {module.source(value)}"),
        module.with_argument(make, f"device={device}"),
        gone,
    ]


def _filled(module: Module, call: ast.Call) -> Edit | None:
    """torch.tensor(0.5, device=…) as torch.full, which gives it the same dtype; None if it is no such call."""
    value = _number(call)
    kept = [keyword for keyword in call.keywords if keyword.arg in ("device", "dtype")]
    if value is None or keyword_of(call, "device") is None or len(kept) != len(call.keywords):
        return None
    name = module.source(call.func).rpartition(".")[0]
    arguments = ", ".join(f"{keyword.arg}={module.source(keyword.value)}" for keyword in kept)
    start, end = module.span(call)
    return Edit(start, end, f"{name}.full((), {module.source(value)}, {arguments})") if name else None


def _named_full(module: Module, call: ast.Call) -> Edit:
    assert isinstance(call.func, ast.Attribute)
    _, end = module.span(call.func)
    return Edit(end - len(call.func.attr), end, "full")


def _number(call: ast.Call) -> ast.expr | None:
    """Returns the argument of a call, if that is one number or truth value."""
    if len(call.args) != 1 or not isinstance(call.func, ast.Attribute):
        return None
    value = call.args[0]
    bare = value.operand if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub) else value
    is_number = isinstance(bare, ast.Constant) and isinstance(bare.value, bool | int | float)
    return value if is_number else None


def _pinned(module: Module, moves: list[ast.Call]) -> tuple[list[Edit], str | None]:
    """Edits that pin the batches of the DataLoader whose loop the copies are in, and what to know about them."""
    loader = _loader(module, moves)
    if loader is None:
        return [], None
    if len(loader.args) > _BEFORE_PIN_MEMORY or any(keyword.arg is None for keyword in loader.keywords):
        return [], None
    workers, asked = keyword_of(loader, "num_workers"), keyword_of(loader, "pin_memory")
    none = workers is None or (isinstance(workers, ast.Constant) and workers.value == 0)
    note = "the batches are pinned, so the copies do not wait" + (_NO_WORKERS if none else "")
    if asked is None:
        return [module.with_argument(loader, "pin_memory=True")], note
    if isinstance(asked, ast.Constant) and asked.value is False:
        return [Edit(*module.span(asked), "True")], note
    return [], None


def _loader(module: Module, moves: list[ast.Call]) -> ast.Call | None:
    """Returns the call that made the DataLoader over which the loop around all copies of its batches goes."""
    loop = next((each for each in module.above(moves[0]) if isinstance(each, Loop)), None)
    if not isinstance(loop, ast.For):
        return None
    targets = names_in(loop.target)
    for move in moves:
        assert isinstance(move.func, ast.Attribute)
        if not names_in(move.func.value) <= targets:
            return None
    over = loop.iter
    if (
        isinstance(over, ast.Call)
        and isinstance(over.func, ast.Name)
        and over.func.id in _AROUND_A_LOADER
        and over.args
    ):
        over = over.args[0]
    if not isinstance(over, ast.Name):
        return over if isinstance(over, ast.Call) and module.calls(over, _LOADER) else None
    made = [
        node.value
        for node in ast.walk(module.scope(loop))
        if isinstance(node, ast.Assign | ast.AnnAssign) and over.id in _assigned(node)
    ]
    bound = module.bound(module.scope(loop)).count(over.id)
    if len(made) != 1 or bound != 1 or not isinstance(made[0], ast.Call) or not module.calls(made[0], _LOADER):
        return None
    return made[0]


def _assigned(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}
