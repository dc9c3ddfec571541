"""Edits of source lines that copy tensors to the device. With an edit, the program pins the tensor
and the copy does not make the host wait, or the program makes the tensor on the device without a
copy.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from unstall.figures import listed
from unstall.patches.loaders import loaders_around
from unstall.patches.syntax import Edit, Loop, Module, keyword_of, names_in

# These give the same values on every device. Factories of random or rounded values do not.
_FACTORIES = ("torch.zeros", "torch.ones", "torch.full", "torch.empty", "torch.eye")
_RANDOM = ("torch.rand", "torch.randn", "torch.randint", "torch.randperm")
_NOT_MOVED = ("requires_grad", "pin_memory", "out", "device")
_OF_THE_HOST = ("cpu", "host", "offload")  # in names of devices
_BEFORE_PIN_MEMORY = 7  # parameters of DataLoader that stand before it
_MAKES = (*_FACTORIES, *_RANDOM, "torch.tensor", "torch.as_tensor", "torch.arange", "torch.from_numpy")
_KEPT = "do not write to {} before its copy has ended"
_LOADS_PINNED = "the loader pins its batches, so the copies do not make the host wait"
_NO_WORKERS = ". Without workers, the loop's own thread pins each batch, so also set num_workers to 1 or more"
_IF_PINNED = (
    "non_blocking=True only helps if the memory is pinned. Do not write to pinned memory before its copy has ended"
)
_UNKNOWN_SOURCE = (
    "non_blocking=True alone changes nothing, because the memory is not pinned. Pin the tensor where it is made "
    "(.pin_memory() once, or DataLoader(pin_memory=True)), and then copy it with non_blocking=True"
)


def uploaded(module: Module, line: int) -> tuple[list[Edit], str] | str:
    """Returns `(edits, note)` for a source line that copies tensors to the device. `note` is text
    for the user of the edits, or "". If no edit is known, returns a phrase that says why.

    If possible, the edited line makes the tensors on the device. If not, the line copies the
    tensors with `non_blocking=True`, and the edits also pin the tensors: by the DataLoader of the
    loop around the line, or in the lines that make the tensors.

    Args:
        module: The file with the line.
        line: The number of the line.
    """
    return _uploaded(module, line, _pinned)


def perhaps_pinned(module: Module, line: int) -> tuple[list[Edit], str] | str:
    """Returns `(edits, note)` for a source line that copies tensors to the device, as `uploaded`
    does. The tensors may be pinned already. So if no edit is known that pins them, the edited line
    copies them with `non_blocking=True`, and the note says that this helps only if they are pinned.
    If no edit is known at all, returns a phrase that says why.
    """

    def pin(module: Module, moves: list[ast.Call]) -> tuple[list[Edit], str]:
        pinned = _pinned(module, moves)
        return ([], _IF_PINNED) if isinstance(pinned, str) else pinned

    return _uploaded(module, line, pin)


def _uploaded(
    module: Module, line: int, pin: Callable[[Module, list[ast.Call]], tuple[list[Edit], str] | str]
) -> tuple[list[Edit], str] | str:
    moves = [call for call in module.at(line, ast.Call) if call.lineno == line and _is_move(call)]
    if not moves and _makers(module, line):
        return made_on_device(module, line)
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
        pinned = pin(module, waiting)
        if isinstance(pinned, str):
            return pinned
        edits = [*(module.with_argument(call, "non_blocking=True") for call in waiting), *pinned[0]]
        notes = [pinned[1]]
    return edits, " ".join(notes)


def made_on_device(module: Module, line: int) -> tuple[list[Edit], str] | str:
    """Returns `(edits, note)` for a source line that makes constants by `torch.tensor(0.5,
    device=…)`. The note is "".

    The edited line calls `torch.full`, which makes the same tensor on the device without a copy. If
    the line cannot be edited, returns a phrase that says why.
    """
    made = _makers(module, line)
    edits = [edit for call in made if (edit := _filled(module, call)) is not None]
    if made and all(call.args and _is_constant(call.args[0]) for call in made) and not edits:
        return "its values are constants, but not all the same: make the tensor once, before the loop"
    if not made or len(edits) != len(made):
        return "the line is not of the form torch.tensor(NUMBER, device=…): its values may be others each time"
    return edits, ""


def _makers(module: Module, line: int) -> list[ast.Call]:
    """Returns the calls of `torch.tensor` and `torch.as_tensor` at a line."""
    return [call for call in module.at(line, ast.Call) if module.calls(call, "torch.tensor", "torch.as_tensor")]


def _is_constant(node: ast.expr) -> bool:
    """Returns whether an expression consists of literals only, such as a number or a list of numbers."""
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError, RecursionError):
        return False
    return True


def _is_move(call: ast.Call) -> bool:
    """Returns whether a call has the form x.to(device) or x.cuda()."""
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr == "cuda":
        return not call.args
    if call.func.attr != "to" or any(keyword.arg is None for keyword in call.keywords):
        return False
    return len(call.args) == 1 and _is_device(call.args[0])


def _may_be_a_module(module: Module, move: ast.Call) -> bool:
    """Returns whether `move` has the form x.cuda() and x may be a module.

    x is a tensor, not a module, if it comes from a batch of the loop around `move`.
    """
    assert isinstance(move.func, ast.Attribute)
    if move.func.attr != "cuda":
        return False
    loop = next((each for each in module.above(move) if isinstance(each, ast.For)), None)
    return loop is None or not names_in(move.func.value) <= names_in(loop.target)


def _is_device(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.startswith("cuda")
    name = (node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else "").lower()
    return ("device" in name or name == "dev") and not any(host in name for host in _OF_THE_HOST)


def _made(module: Module, move: ast.Call) -> list[Edit] | str:
    """Returns edits of `move`, a call such as `x.to(device)`, that make the tensor on the device,
    if x is itself a call that makes a tensor, such as `torch.zeros(8)`.

    Returns [] if x is anything else. Returns a phrase if x makes random numbers: those made on the
    device would differ from those made on the CPU.
    """
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
    """Returns an edit of `call`, such as `torch.tensor(0.5, device=…)`, that calls `torch.full`
    with the same dtype. Returns None for calls of another form.
    """
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
    """Returns the only positional argument of `call`, such as 0.5 in `torch.tensor(0.5)`, if it is
    a number or a bool. Otherwise returns None.
    """
    if len(call.args) != 1 or not isinstance(call.func, ast.Attribute):
        return None
    value = call.args[0]
    bare = value.operand if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub) else value
    is_number = isinstance(bare, ast.Constant) and isinstance(bare.value, bool | int | float)
    return value if is_number else None


def _pinned(module: Module, moves: list[ast.Call]) -> tuple[list[Edit], str] | str:
    """Returns `(edits, note)`. The edits pin the tensors that `moves` copies. Returns a phrase that
    says why if no edits are known.

    Args:
        module: The file.
        moves: Calls such as `x.to(device)`.
    """
    loaders = loaders_around(module, moves)
    return _pinned_by(module, loaders) if loaders else _pinned_where_made(module, moves)


def _pinned_by(module: Module, loaders: list[ast.Call]) -> tuple[list[Edit], str] | str:
    """Returns `(edits, note)`. The edits change the calls `loaders`, which make the DataLoader of a
    loop, so that the DataLoader pins its batches. Returns a phrase that says why if there are no
    such edits.
    """
    edits = []
    for loader in loaders:
        if len(loader.args) > _BEFORE_PIN_MEMORY or any(keyword.arg is None for keyword in loader.keywords):
            return _UNKNOWN_SOURCE
        asked = keyword_of(loader, "pin_memory")
        if asked is None:
            edits.append(module.with_argument(loader, "pin_memory=True"))
        elif not isinstance(asked, ast.Constant):
            return _UNKNOWN_SOURCE
        elif asked.value is False:
            edits.append(Edit(*module.span(asked), "True"))
    workers = [keyword_of(loader, "num_workers") for loader in loaders]
    none = any(each is None or (isinstance(each, ast.Constant) and each.value == 0) for each in workers)
    return edits, _LOADS_PINNED + (_NO_WORKERS if none else "")


def _pinned_where_made(module: Module, moves: list[ast.Call]) -> tuple[list[Edit], str] | str:
    """Returns `(edits, note)`. The edits pin each tensor that `moves` copies, in the call that
    makes it.

    Returns a phrase that says why if a tensor is not made exactly once, on the host, outside the
    loop.
    """
    made: dict[str, ast.Call] = {}
    for move in moves:
        assert isinstance(move.func, ast.Attribute)
        source = move.func.value
        call = _made_once(module, move, source.id) if isinstance(source, ast.Name) else None
        if call is None or not isinstance(source, ast.Name):
            return _UNKNOWN_SOURCE
        made[source.id] = call
    ends = [module.span(call)[1] for call in made.values()]
    return [Edit(end, end, ".pin_memory()") for end in ends], _KEPT.format(listed(list(made)))


def _made_once(module: Module, move: ast.Call, name: str) -> ast.Call | None:
    """Returns the call that makes the tensor in the variable `name`, which the call `move` copies
    to the device.

    Returns None if the variable may hold another tensor. Also returns None if the call that makes
    the tensor is in a loop: pinning takes longer than a copy.
    """
    if module.bound(module.tree).count(name) != 1:
        return None
    for scope in (module.scope(move), module.tree):
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]:
                call = node.value
                plain = isinstance(call, ast.Call) and module.calls(call, *_MAKES) and not _is_placed(call)
                in_loop = any(isinstance(each, Loop) for each in module.above(node))
                return call if plain and not in_loop and isinstance(call, ast.Call) else None
    return None


def _is_placed(call: ast.Call) -> bool:
    return any(keyword.arg in (None, "device", "pin_memory") for keyword in call.keywords)
