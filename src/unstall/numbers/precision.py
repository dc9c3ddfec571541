"""The settings of torch by which a GPU computes products with fewer digits than the products' type
has, such as TF32. Finds whether such settings explain a difference between two runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch

from unstall.numbers.run import run
from unstall.numbers.ways import Way
from unstall.rounding.judge import RUNS, Judge
from unstall.rounding.noise import Noise

_Key: TypeAlias = tuple[str, str]
_FLOAT32 = frozenset((torch.float32, torch.complex64))


@dataclass(frozen=True, slots=True)
class Switch:
    """A setting of torch that makes products less exact.

    Attributes:
        kind: The kind of the differences that the setting causes, as in `answer.Row`.
        what: A phrase that says what the setting does.
        types: The types whose products the setting makes less exact.
        is_on: A function that returns whether the setting is on.
        how: A function that returns the code by which a user turns the setting off.
        off: A function that returns a context manager. The setting is off within its block. After
            the block, all settings of the program are as before.
    """

    kind: str
    what: str
    types: frozenset[torch.dtype]
    is_on: Callable[[], bool]
    how: Callable[[], str]
    off: Callable[[], AbstractContextManager[None]]


class Explained(NamedTuple):
    """The settings (switches) that explain a difference between two runs.

    Attributes:
        on: All switches that are on. If all of them are turned off, the difference goes away.
        matter: Those switches of `on` that cause the difference.
    """

    on: tuple[Switch, ...]
    matter: tuple[Switch, ...]


def explained(
    base: Callable[[], Way], way: Callable[[], Way], types: frozenset[torch.dtype], *, one_at_a_time: bool
) -> Explained | None:
    """Returns the settings (switches) that explain the difference between two ways of running a
    function. Returns None if these settings do not explain the difference.

    Args:
        base: Prepares the first way. It is called anew for each run.
        way: Prepares the second way. It is called anew for each run.
        types: The types of the tensors in both runs. Only the switches for these types are turned
            off.
        one_at_a_time: Whether operators must not overlap, because the function has races.
    """
    on = tuple(each for each in SWITCHES if each.types & types and each.is_on())
    if not on:
        return None
    once = partial(run, one_at_a_time=one_at_a_time)
    with off(on):
        judge = Judge(once(base()), [once(base(), Noise(seed)) for seed in range(RUNS)])
        if judge.compare(once(way())).first is not None:
            return None
    if len(on) == 1:
        return Explained(on, on)
    matter = []
    for each in on:
        with off([other for other in on if other is not each]):
            if any(judge.compare(once(make())).first is not None for make in (base, way)):
                matter.append(each)
    return Explained(on, tuple(matter) or on)


@contextmanager
def off(switches: Sequence[Switch]) -> Iterator[None]:
    """Returns a context manager that turns the given switches off within its block."""
    with ExitStack() as stack:
        for each in switches:
            stack.enter_context(each.off())
        yield


# float32. torch has an older API, and since 2.9 a newer one, `fp32_precision`, whose settings a backend and an operator
# inherit from "all". Getters of the older one fail if the program's settings by both contradict each other.

_PARENTS: dict[str, _Key] = {"cuda": ("cuda", "all"), "mkldnn": ("mkldnn", "all")}
_GENERIC: _Key = ("generic", "all")
_WITH_DEFAULT = ("conv", "rnn")
"""Operators for which torch has a default of its own while no value is set for them. Once a value
is set, the default cannot be restored.
"""
_torch_c: Any = torch._C
_HAS_NEWER = hasattr(_torch_c, "_get_fp32_precision_getter")


def _get(key: _Key) -> str:
    return str(_torch_c._get_fp32_precision_getter(*key))


def _set(key: _Key, value: str) -> None:
    _torch_c._set_fp32_precision_setter(*key, value)


def _own(key: _Key) -> str:
    """Returns the value that is set for `key` itself. Returns "none" if the key inherits its value
    from its parent.

    To find this out, sets another value for the parent, and then restores the parent's value.
    """
    value = _get(key)
    if key == _GENERIC:
        return value
    parent = _GENERIC if key in _PARENTS.values() else _PARENTS[key[0]]
    before = _own(parent)
    other = "ieee" if value != "ieee" else "tf32"
    try:
        _set(parent, other)
        return "none" if _get(key) == other else value
    finally:
        _set(parent, before)


@dataclass(frozen=True, slots=True)
class _Api:
    """The settings of TF32 for one kind of operator, in torch's older and newer API.

    Attributes:
        get: Gets the setting by torch's older API.
        set: Changes the setting by the older API.
        off: The value that turns TF32 off in the older API.
        keys: The keys of the setting in torch's newer API, `fp32_precision`.
        older: The code that turns TF32 off by the older API.
        newer: The code that turns TF32 off by the newer API.
    """

    get: Callable[[], object]
    set: Callable[[Any], object]
    off: object
    keys: tuple[_Key, ...]
    older: str
    newer: str

    def value(self) -> object | None:
        """Returns the value of the setting in the older API; None if getting it fails."""
        try:
            return self.get()
        except RuntimeError:
            return None

    def is_on(self) -> bool:
        if _HAS_NEWER:
            return any(_get(key) == "tf32" for key in self.keys if key[0] == "cuda")
        return self.value() != self.off

    def how(self) -> str:
        return self.newer if self.value() is None else self.older

    @contextmanager
    def turned_off(self) -> Iterator[None]:
        own = {key: _own(key) for key in self.keys} if _HAS_NEWER else {}
        if any(key[1] in _WITH_DEFAULT and value == "none" for key, value in own.items()):
            with _off_by_parent([key for key, value in own.items() if value != "none"]):
                yield
            return
        value = self.value()
        try:
            if value is not None:
                self.set(self.off)
            for key in own:
                _set(key, "ieee")
            yield
        finally:
            if value is not None:
                self.set(value)
            for key, before in own.items():
                _set(key, before)


@contextmanager
def _off_by_parent(keys: Sequence[_Key]) -> Iterator[None]:
    """Returns a context manager that turns TF32 off, within its block, for the given keys, and for
    the CUDA operators that inherit their setting from the CUDA backend. The setting of matrix
    products is not changed.
    """
    parent, matmul = _PARENTS["cuda"], _MATMUL.keys[0]
    before = {key: _own(key) for key in (parent, matmul, *keys)}
    try:
        if before[matmul] == "none":
            _set(matmul, _get(matmul))
        for key in (parent, *keys):
            _set(key, "ieee")
        yield
    finally:
        for key, value in before.items():
            _set(key, value)


def _set_cudnn(value: bool) -> None:
    torch.backends.cudnn.allow_tf32 = value


_MATMUL = _Api(
    torch.get_float32_matmul_precision,
    torch.set_float32_matmul_precision,
    "highest",
    (("cuda", "matmul"), ("mkldnn", "matmul")),
    'torch.set_float32_matmul_precision("highest")',
    'torch.backends.cuda.matmul.fp32_precision = "ieee"',
)
_CUDNN = _Api(
    lambda: torch.backends.cudnn.allow_tf32,
    _set_cudnn,
    False,
    (("cuda", "conv"), ("cuda", "rnn")),
    "torch.backends.cudnn.allow_tf32 = False",
    'torch.backends.cudnn.conv.fp32_precision = "ieee"',
)


# Types with 16 bits: sums of products are added up in that type.


@dataclass(frozen=True, slots=True)
class _Half:
    """A boolean setting of `torch.backends.cuda.matmul`.

    In some versions of torch, the setting is a pair of values. The second value is for split-k.
    """

    name: str

    def is_on(self) -> bool:
        return bool(getattr(torch.backends.cuda.matmul, self.name, False))

    def how(self) -> str:
        return f"torch.backends.cuda.matmul.{self.name} = False"

    @contextmanager
    def turned_off(self) -> Iterator[None]:
        module: Any = torch.backends.cuda.matmul
        before = bool(getattr(module, self.name))
        splits = getattr(module, f"{self.name}_split_k", None)
        try:
            setattr(module, self.name, False if splits is None else (False, splits))
            yield
        finally:
            setattr(module, self.name, before if splits is None else (before, splits))


def _half(name: str, dtype: torch.dtype, named: str) -> Switch:
    half = _Half(name)
    return Switch(
        "reduced precision",
        f"adds up products of {named} in {named}",
        frozenset((dtype,)),
        half.is_on,
        half.how,
        half.turned_off,
    )


SWITCHES = (
    Switch(
        "TF32",
        "rounds the factors of matrix products to TF32",
        _FLOAT32,
        _MATMUL.is_on,
        _MATMUL.how,
        _MATMUL.turned_off,
    ),
    Switch("TF32", "rounds the factors of convolutions to TF32", _FLOAT32, _CUDNN.is_on, _CUDNN.how, _CUDNN.turned_off),
    _half("allow_fp16_reduced_precision_reduction", torch.float16, "float16"),
    _half("allow_bf16_reduced_precision_reduction", torch.bfloat16, "bfloat16"),
    _half("allow_fp16_accumulation", torch.float16, "float16"),
)
"""All settings of torch that make products less exact."""
