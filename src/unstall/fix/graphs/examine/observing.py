"""Runs a function once, eagerly, and observes the run."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, TypeVar

import torch

from unstall.fix.graphs.capture.capture_device import CaptureDevice
from unstall.fix.graphs.examine.host_waits import waits_named
from unstall.fix.graphs.examine.observed_call import ObservedCall
from unstall.fix.graphs.examine.observer_mode import ObserverMode
from unstall.fix.graphs.examine.reachable_state import CodeWithGlobals
from unstall.fix.graphs.examine.rng_use import RngUse
from unstall.fix.graphs.examine.users_code import is_users_code
from unstall.fix.graphs.examine.warnings_raised import listening_to_warnings
from unstall.fix.tensors.storages import tensors_of
from unstall.frameworks import OURS, top_module

_T = TypeVar("_T")
_ASKS = {"is_current_stream_capturing", "_cuda_isCurrentStreamCapturing"}
_MAY_ASK = (str(Path(torch.__file__).parent), OURS)  # torch asks to warn or refuse; a recording asks at each step
_COMPUTES_NAMES = {"getattr", "vars", "globals", "locals", "eval", "exec", "attrgetter", "__dict__", "__getattribute__"}
_PRINTS = {"print", "open", "input", "write", "writelines"}


def observed(
    run: Callable[[], _T], inputs: list[torch.Tensor], device: CaptureDevice, *, stops: bool = False
) -> tuple[_T, ObservedCall]:
    """Calls `run` and observes the call. Returns (result of `run`, effects of the call). Errors of `run` are raised
    unchanged. If `stops` is True, raises `Refused` instead of waiting for the device. `inputs` are the input tensors of
    the call."""
    device_type = device.type
    profiled = sys.getprofile() is not None
    rng_use = RngUse(follows=not profiled)
    observer = ObserverMode(inputs, device_type, device.index, rng_use, stops=stops)
    codes: dict[CodeType, dict[str, Any]] = {}

    def note(frame: FrameType, event: str, called: object) -> None:
        if event == "call":
            codes.setdefault(frame.f_code, frame.f_globals)
        elif event == "c_call":
            rng_use.note_call(called)
            if _seeds(called):
                observer.refuse("it seeds a random generator, and a graph would not", "seed before the call")
            elif _prints(called) and _is_asked_by_user(frame):
                reason = "it prints, or reads or writes a file, and a graph would not"
                observer.refuse(reason, "do that outside the graph")

    drawn = None if stops else device.generator().get_state()
    with listening_to_warnings(observer.is_programs_warning), waits_named(observer.note_wait, device_type):
        if not profiled:
            sys.setprofile(note)
        try:
            with observer:
                result = run()
        finally:
            if not profiled:
                sys.setprofile(None)
    observer.note_handed_out(tensors_of(result))
    refusals, uncertain = rng_use.found(codes, beside="torch" if device_type == "cpu" else "")
    observer.seen.refusals += refusals
    observer.seen.uncertain += uncertain
    observer.seen.random = bool(observer.seen.generators)
    if drawn is not None:  # otherwise this is a capture, in which the generator's state cannot be read
        observer.seen.random |= not torch.equal(drawn, device.generator().get_state())
    observer.seen.moves = any(tensor.data_ptr() != address for tensor, address in observer.addresses)
    observer.release()
    if not profiled:
        observer.seen.names = _names_in(codes)
        observer.seen.scopes = [CodeWithGlobals(code, names) for code, names in codes.items() if is_users_code(code)]
        observer.seen.asks_whether_captured = any(
            not _ASKS.isdisjoint(code.co_names) and not code.co_filename.startswith(_MAY_ASK) for code in codes
        )
    return result, observer.seen


def _names_in(codes: Iterable[CodeType]) -> frozenset[str] | None:
    """Returns all names in the code objects. Returns None if the user's code may compute names at run time, for example
    with `getattr`."""
    names: set[str] = set()
    for code in codes:
        if is_users_code(code) and not _COMPUTES_NAMES.isdisjoint(code.co_names):
            return None
        names.update(code.co_names, code.co_freevars)
        for constant in code.co_consts:
            if isinstance(constant, str):
                names.add(constant)
            elif isinstance(constant, tuple):
                names.update(part for part in constant if isinstance(part, str))
    return frozenset(names)


def _seeds(called: object) -> bool:
    owner = getattr(called, "__self__", None)
    return isinstance(owner, torch.Generator) and getattr(called, "__name__", None) in ("manual_seed", "seed")


def _prints(called: object) -> bool:
    if getattr(called, "__name__", None) not in _PRINTS:
        return False
    owner = getattr(called, "__self__", None)
    return isinstance(owner, (ModuleType, io.IOBase))


def _is_asked_by_user(frame: FrameType | None) -> bool:
    """Returns whether the user's code made this call, either directly or only through Python's standard library."""
    while frame is not None:
        if is_users_code(frame.f_code):
            return True
        if (
            top_module(frame.f_code.co_filename) not in sys.stdlib_module_names
            or frame.f_globals["__name__"] == "warnings"
        ):
            return False
        frame = frame.f_back
    return False
