"""Runs a program as it is and with its function served by graphs, and tells where the two differ."""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
import random
import sys
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from fix.graphed.random_programs import PRELUDE, Program

_NAME = "a_random_program"
_OURS = "runs as it is"


@dataclass
class Seen:
    """What one call left, by name; what its tensors share memory with."""

    facts: dict[str, Any] = field(default_factory=dict)
    storages: dict[int, list[tuple[str, int]]] = field(default_factory=dict)

    def sharing(self) -> set[frozenset[tuple[str, int]]]:
        groups: set[frozenset[tuple[str, int]]] = set()
        for names in self.storages.values():
            start = names[0][1]
            groups.add(frozenset((name, address - start) for name, address in names))
        return groups

    def _is_left_of_a_backward(self, name: str) -> bool:
        """What a step returns has a graph of autograd's in eager, which its backward has used up; by a graph none."""
        return name.endswith("'s autograd") and self.facts.get(name) == (True, False)

    def differences(self, other: Seen, *, of_a_step: bool) -> list[str]:
        """In words; `self` is what is without graphs. `of_a_step`: the function runs a backward itself."""
        found = [
            f"{name}: {self.facts.get(name, 'nothing')} and {other.facts.get(name, 'nothing')}"
            for name in sorted({*self.facts, *other.facts})
            if self.facts.get(name) != other.facts.get(name) and not (of_a_step and self._is_left_of_a_backward(name))
        ]
        mine, theirs = self.sharing(), other.sharing()
        if not found and mine != theirs:
            one, two = sorted(map(sorted, mine - theirs)), sorted(map(sorted, theirs - mine))
            found.append(f"shares memory: {one} and {two}")
        return found


def history(program: Program, make: Callable[[Any], Any], device: str) -> list[Seen]:
    """What there is after each call."""
    module = types.ModuleType(_NAME)
    file = f"/a/users/{_NAME}.py"
    module.__file__ = file
    sys.modules[_NAME] = module
    linecache.cache[file] = (len(program.setup), None, program.setup.splitlines(keepends=True), file)
    names = vars(module)
    names["D"] = device
    found: list[Seen] = []
    torch.manual_seed(0)
    exec(compile(program.setup, file, "exec"), names)
    names["fn"] = make(names["plain"])
    for place, call in enumerate(program.calls):
        seen, said = Seen(), io.StringIO()
        with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(said):
            warnings.simplefilter("always")
            try:
                exec(compile(call, f"/a/users/call_{place}.py", "exec"), names)
            except Exception as error:
                seen.facts["error"] = (type(error).__name__, str(error)[:70])
        seen.facts["warnings"] = [str(each.message) for each in caught if _OURS not in str(each.message)]
        seen.facts["printed"] = said.getvalue()
        seen.facts["random"] = (random.getstate()[1][-1], random.getstate()[1][:3])
        seen.facts["random numbers of torch"] = _bytes(torch.get_rng_state())
        if device == "cuda":
            seen.facts["random numbers of the device"] = _bytes(torch.cuda.get_rng_state())
        for name in sorted(names):
            if name not in ("fn", "plain") and not name.startswith("_"):
                _note(seen, name, names[name], set())
        found.append(seen)
    return found


def _bytes(tensor: torch.Tensor) -> int:
    return hash(tensor.numpy().tobytes())


def _note(seen: Seen, name: str, value: Any, above: set[int]) -> None:
    if isinstance(value, torch.Tensor):
        _note_tensor(seen, name, value)
    elif isinstance(value, torch.Generator):
        seen.facts[name] = _bytes(value.get_state())
    elif isinstance(value, (bool, int, float, str, type(None))):
        seen.facts[name] = repr(value)
    elif id(value) in above or isinstance(value, (type, types.ModuleType, types.FunctionType)):
        return
    elif isinstance(value, (dict, list, tuple)):
        seen.facts[f"{name} is"] = (type(value).__name__, len(value))
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            key = key if isinstance(key, (str, int)) else f"of {getattr(key, 'shape', type(key).__name__)}"
            _note(seen, f"{name}[{key!r}]", item, {*above, id(value)})
    elif hasattr(value, "__dict__"):
        for key, item in vars(value).items():
            if "hook" not in key:
                _note(seen, f"{name}.{key}", item, {*above, id(value)})


def _note_tensor(seen: Seen, name: str, tensor: torch.Tensor) -> None:
    seen.facts[name] = (tuple(tensor.shape), str(tensor.dtype), str(tensor.device), tensor.is_inference())
    seen.facts[f"{name}'s strides"] = tensor.stride()
    with contextlib.suppress(RuntimeError):  # of a view that autograd refuses to speak about
        seen.facts[f"{name}'s autograd"] = (tensor.requires_grad, tensor.is_leaf)
    seen.facts[f"{name}'s values"] = repr(tensor.detach().cpu().tolist())
    if tensor.numel():
        storage = tensor.untyped_storage()
        seen.storages.setdefault(storage.data_ptr(), []).append((name, tensor.data_ptr()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        grad = tensor.grad if seen.facts.get(f"{name}'s autograd", (True, False))[1] else None
    if grad is not None:
        _note_tensor(seen, f"{name}.grad", grad)


def _as_documented(program: Program, mine: Seen, theirs: Seen) -> bool:
    """Whether all that differs is that `.data =` between a call and its backward is an error, that a backward which is
    one in both leaves other gradients, or that those of several calls in one backward, or of a weight that is a result
    too, are added up in another order."""
    error = theirs.facts.get("error")
    if error is not None and "error" not in mine.facts and "was given other memo" in error[1]:
        return any(".data = " in call for call in program.calls)
    names = [name for name in {*mine.facts, *theirs.facts} if mine.facts.get(name) != theirs.facts.get(name)]
    if error is not None and all(".grad" in name for name in names):
        return mine.facts.get("error") == error and any(why in error[1] for why in ("modified", "a second time"))
    added_up = any(call.count("fn(") > 1 for call in program.calls) or any(name.startswith("result") for name in names)
    if not added_up or not all(name.endswith(".grad's values") for name in names):
        return False
    pairs = [[torch.tensor(ast.literal_eval(each.facts[name])) for each in (mine, theirs)] for name in names]
    return all(torch.allclose(one, other, rtol=1e-5, atol=1e-5 * float(one.abs().max())) for one, other in pairs)


def difference(program: Program, make: Callable[[Any], Any], device: str) -> tuple[str, Any]:
    """Where the program does otherwise with its function as `make` makes it, "" for nowhere; and what that one's
    `.stats()` are."""
    made: list[Any] = []

    def keep(plain: Any) -> Any:
        made.append(make(plain))
        return made[-1]

    pairs = zip(history(program, lambda plain: plain, device), history(program, keep, device), strict=True)
    of_a_step = any(each in program.setup.removeprefix(PRELUDE) for each in ("backward()", "autograd.grad"))
    for place, (mine, theirs) in enumerate(pairs):
        found = mine.differences(theirs, of_a_step=of_a_step)
        if found and _as_documented(program, mine, theirs):
            break  # what follows may differ too
        if found:
            return f"call {place}: " + "\n".join(each[:1000] for each in found[:6]), made[0].stats()
    return "", made[0].stats()
