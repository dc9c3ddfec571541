"""Checks whether the results of two functions agree. Compares the results value by value. Differences are measured in
units in the last place (ulp) and as relative differences.

Two different floating-point results can both be correct. To show which result is more accurate, the reference function
is also called in float64, if possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unstall.measuring.comparing.result_arrays import ResultArray, is_torch, leaves_of

if TYPE_CHECKING:
    import torch

    from unstall.rounding.agree import Explained

_MORE_ERROR = 2.0  # times the reference's own error against float64


@dataclass(frozen=True, slots=True)
class Agreement:
    """How closely a function's result agrees with the result of the reference function, the first
    of the compared functions.

    Attributes:
        agrees: Whether the results agree.
        text: A text that describes the difference, or says that the results are equal.
        ulp: The largest difference between two values, in units in the last place of the less
            precise dtype. None if the results contain no numbers.
        relative: The largest difference between two values, divided by the largest magnitude in the
            reference's array. If this array has only zeros, any difference counts as 1. None if the
            results contain no numbers.
        error: The relative difference between the function's result and the float64 result of the
            reference function. None if there is no float64 result.
        reference_error: The relative difference between the reference's result and the float64
            result of the reference function. None if there is no float64 result.
    """

    agrees: bool
    text: str
    ulp: float | None = None
    relative: float | None = None
    error: float | None = None
    reference_error: float | None = None


@dataclass(frozen=True, slots=True)
class Distance:
    """The difference between two arrays.

    Attributes:
        ulp: The largest difference between two values, in units in the last place.
        relative: The largest difference between two values, divided by the largest magnitude in the
            second array.
        within: Whether the difference is at most the allowed one.
        nan: The number of values that are NaN in both arrays.
    """

    ulp: float
    relative: float
    within: bool  # whether it is within the tolerance
    nan: int = 0  # number of values that are NaN in both


class NoNoise(Exception):  # noqa: N818 - it says why something is not known
    """Raised if the reference function (the first of the compared functions) cannot be called with
    random rounding errors in its operators. The message says why.
    """


@dataclass(frozen=True, slots=True)
class _Apart:
    """An array of a result that differs from the reference's array.

    Attributes:
        name: The name of the array in the result, such as "result[0]".
        one: The array in the function's result.
        other: The array in the reference's result.
        distance: The difference between `one` and `other`.
        is_near: Whether the error of `one` is at most twice the error of `other`. An error is the difference from the
            float64 result of the reference function.
    """

    name: str
    one: ResultArray
    other: ResultArray
    distance: Distance
    is_near: bool

    def why(self) -> str:
        return _apart(self.name, self.one, self.other, self.distance)


@dataclass(frozen=True, slots=True)
class _NoPair:
    """Stands in place of an array of a result that has no counterpart in the reference's result, or
    none of the same form. `why` is the reason.
    """

    why: str


def agreement(
    result: object,
    reference: object,
    *,
    exact: object = None,
    rel_tolerance: float | None = None,
    ulp: float | None = None,
    noisy: Callable[[int], object] | None = None,
) -> Agreement:
    """Compares a function's result with the result of the reference function.

    A floating-point value agrees if its difference is at most `ulp` units in the last place, or at most `rel_tolerance`
    times the largest magnitude in the reference's array. All other values must be equal.

    If neither `ulp` nor `rel_tolerance` is given, results agree in two cases. In the first case, rounding explains the
    difference; `noisy` is used to measure the size of the differences that rounding causes. In the second case, the
    error of each array is at most twice the error of the reference's array. An error is the difference from `exact`. If
    `noisy` cannot measure rounding, an array whose error is above this limit or unknown may still agree: its difference
    must be within an assumed tolerance. This tolerance is the dtype's epsilon to the power 3/4 (6e-6 for float32). The
    text of the result then mentions the assumed tolerance.

    Args:
        result: The function's result: arrays and other values, also in nested containers.
        reference: The reference function's result.
        exact: The reference function's result in float64. None if this result could not be computed.
        rel_tolerance: The largest allowed difference, as a fraction of the largest magnitude in the reference's array.
        ulp: The largest allowed difference, in units in the last place.
        noisy: A function that calls the reference function once more and returns the result. During the call, random
            errors as large as rounding errors are added. The argument is the seed of the errors. Raises `NoNoise` if
            this is not possible.
    """
    pairs = list(_paired("result", result, reference))
    exacts = dict(leaves_of("result", exact)) if exact is not None else {}
    far, near, error, own = 0.0, 0.0, None, None
    has_numbers, told, nan, values = False, False, 0, 0
    apart: list[_Apart] = []
    for name, one, other in pairs:
        if isinstance(one, _NoPair):
            return Agreement(False, f"{name} {one.why}")
        if not isinstance(one, ResultArray):
            if not _equal(one, other):
                return Agreement(False, f"{name} is {_brief(one)}, the reference's {_brief(other)}")
            told = told or not (one is None or name.startswith("len(") or _is_plain_object(one))
            continue
        if one.shape != other.shape:
            return Agreement(False, f"{name} has shape {one.shape}, the reference's {other.shape}")
        has_numbers = True
        distance = _distance(one, other, rel_tolerance, ulp)
        nan, values = nan + distance.nan, values + int(np.prod(one.shape, dtype=np.int64))
        far, near = max(far, distance.ulp), max(near, distance.relative)
        is_near, truth = False, exacts.get(name)
        if isinstance(truth, ResultArray) and truth.shape == other.shape and other.epsilon > truth.epsilon > 0:
            mine, its = _distance(one, truth, None, None).relative, _distance(other, truth, None, None).relative
            error, own = max(error or 0.0, mine), max(own or 0.0, its)
            is_near = mine <= _MORE_ERROR * max(its, other.epsilon / 2)
        if distance.ulp:
            apart.append(_Apart(name, one, other, distance, is_near))
    if not has_numbers:
        return Agreement(True, "the results are equal" if told else "there are no results that could be compared")
    if rel_tolerance is not None or ulp is not None:
        beyond, how = next((each for each in apart if not each.distance.within), None), ""
    else:
        beyond, how = _judged(apart, noisy)
    if beyond is not None:
        return Agreement(False, beyond.why() + how, far, near, error, own)
    both = f"; NaN in both, {nan:,} of {values:,} values" if nan else ""
    return Agreement(True, _together(far, near, how, error, own) + both, far, near, error, own)


def _judged(apart: list[_Apart], noisy: Callable[[int], object] | None) -> tuple[_Apart | None, str]:
    """Returns (array, how). `array` is the first array that does not agree with the reference's array, or None if all
    arrays agree. `how` is a text that says how the differences were judged.
    """
    exact = next((each for each in apart if not each.one.epsilon and not each.other.epsilon), None)
    if exact is not None or not apart:
        return exact, ""
    why = ""
    try:
        explained = _explained(apart, noisy) if noisy is not None else None
    except NoNoise as error:
        explained, why = None, f" (rounding was not measured: {error})"
    far = next((each for each in apart if not each.is_near), None)
    if explained is not None and explained.measured:
        if explained.agrees:
            return None, f", within rounding ({_percent(explained.share)} of the limit)"
        beyond = apart[explained.first] if explained.first is not None else apart[0]
        if far is None:
            return None, ""
        times = f": {explained.share:,.0f} times as much as rounding explains" if np.isfinite(explained.share) else ""
        return beyond, times if np.isfinite(beyond.distance.relative) else ""
    if far is None:
        return None, ""
    wrong = next((each for each in apart if not each.is_near and not each.distance.within), None)
    tolerance = max((wrong or far).one.epsilon, (wrong or far).other.epsilon) ** 0.75
    if wrong is None:
        return None, f", within an assumed tolerance of {tolerance:.1g}{why}"
    finite = np.isfinite(wrong.distance.relative)
    return wrong, f", more than an assumed tolerance of {tolerance:.1g}{why}" if finite else ""


def _explained(apart: list[_Apart], noisy: Callable[[int], object]) -> Explained | None:
    """Compares the differences in `apart` with the differences that random rounding errors cause in the reference
    function.

    Returns None if some arrays are not torch tensors, or if the dtype of an array differs from the dtype of the
    reference's array.

    Raises:
        NoNoise: The reference function cannot be called with random rounding errors.
    """
    pairs = [
        (each.one.value, each.other.value)
        for each in apart
        if is_torch(each.one.value) and is_torch(each.other.value) and each.one.dtype == each.other.dtype
    ]
    if len(pairs) < len(apart):
        return None
    from unstall.rounding.agree import explain

    def again(number: int) -> list[torch.Tensor]:
        found = dict(leaves_of("result", noisy(number)))
        leaves = [found.get(each.name) for each in apart]
        tensors = [leaf.value for leaf in leaves if isinstance(leaf, ResultArray) and is_torch(leaf.value)]
        if len(tensors) < len(apart):
            raise NoNoise("with random errors, the first function returns something else")
        return tensors

    try:
        return explain([other for _, other in pairs], [one.to(other.device) for one, other in pairs], again)
    except (RuntimeError, TypeError, MemoryError) as error:  # too little memory, or a device without float64
        raise NoNoise(f"that raises {type(error).__name__}") from error


def in_float64(fn: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]) -> Any:
    """Calls `fn` with its floating-point arguments converted to float64, and returns the result.

    Operators of torch draw the same random numbers as in float32. Returns None if no argument has
    floating-point values, or if the call fails.
    """
    changed = False
    drawn: AbstractContextManager[object] = nullcontext()

    def widen(value: Any) -> Any:
        nonlocal changed, drawn
        if isinstance(value, np.ndarray) and value.dtype.kind in "f":
            changed = True
            return value.astype(np.float64)
        if is_torch(value) and value.is_floating_point():
            changed = True
            drawn = _drawn_in_float32()
            return value.detach().double()
        if isinstance(value, list | tuple) and type(value) in (list, tuple):
            return type(value)(map(widen, value))
        return {key: widen(each) for key, each in value.items()} if type(value) is dict else value

    wide_args, wide_kwargs = widen(tuple(args)), widen(dict(kwargs))
    if not changed:
        return None
    try:
        with drawn:
            return fn(*wide_args, **wide_kwargs)
    except Exception:  # for example mixed dtypes, missing kernels or too little memory
        return None


def _drawn_in_float32() -> AbstractContextManager[object]:
    from unstall.rounding.noise import drawn_in_float32
    from unstall.rounding.operators import Operators

    return Operators(call=drawn_in_float32)


def _paired(name: str, one: object, other: object) -> Iterator[tuple[str, Any, Any]]:
    ours, theirs = dict(leaves_of(name, one)), dict(leaves_of(name, other))
    for each in theirs:
        if each not in ours:
            yield each, _NoPair("is missing, and the reference's is there"), None
            return
    for each in ours:
        if each not in theirs:
            yield each, _NoPair("is there, and the reference's is not"), None
            return
        mine, its = ours[each], theirs[each]
        if isinstance(mine, ResultArray) != isinstance(its, ResultArray):
            yield each, _NoPair(f"is {_brief(mine)}, the reference's {_brief(its)}"), None
            return
        yield each, mine, its


def _distance(one: ResultArray, other: ResultArray, rel_tolerance: float | None, ulp: float | None) -> Distance:
    """Returns the difference between two arrays. Units in the last place are those of the less precise dtype. `other`
    is the reference's array.
    """
    epsilon, tiny = max(one.epsilon, other.epsilon), max(one.tiny, other.tiny)
    if not epsilon:
        equal = all(np.array_equal(a, b) for a, b in zip(one.pieces(), other.pieces(), strict=True))
        return Distance(0.0, 0.0, True) if equal else Distance(np.inf, np.inf, False)
    if rel_tolerance is None:
        rel_tolerance = epsilon**0.75 if ulp is None else 0.0
    largest = max((float(np.abs(b[np.isfinite(b)]).max(initial=0)) for b in other.pieces()), default=0.0)
    far, apart, within, nan = 0.0, 0.0, True, 0
    for a, b in zip(one.pieces(), other.pieces(), strict=True):
        none = np.isnan(a) & np.isnan(b)
        nan += int(none.sum())
        same = (a == b) | none
        if same.all():
            continue
        a, b = np.asarray(a, np.float64)[~same], np.asarray(b, np.float64)[~same]
        with np.errstate(invalid="ignore", over="ignore"):
            gap = np.where(np.isfinite(a) & np.isfinite(b), np.abs(a - b), np.inf)
            ulps = gap / (epsilon * np.maximum(_power_below(b), tiny))
        far, apart = max(far, float(ulps.max())), max(apart, float(gap.max()))
        fine = gap <= rel_tolerance * largest
        within = within and bool((fine if ulp is None else fine | (ulps <= ulp)).all())
    relative = apart / (largest or apart) if apart else 0.0
    return Distance(far, relative, within, nan)


def _power_below(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns a number for each value: the largest power of two that is at most the magnitude of the value. For the
    value 0, the number is 0."""
    mantissa, exponent = np.frexp(np.where(np.isfinite(values), np.abs(values), 0.0))
    return np.where(mantissa > 0, np.ldexp(1.0, exponent - 1), 0.0)


def _equal(one: object, other: object) -> bool:
    try:
        if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):  # of text, dates, objects or records
            return np.array_equal(one, other, equal_nan=one.dtype.kind == other.dtype.kind and one.dtype.kind in "mM")
        return bool(one == other) or (type(one) is type(other) and _is_plain_object(one))
    except Exception:  # an `==` of the user's
        return False


def _is_plain_object(value: object) -> bool:
    """Returns whether `==` compares `value` only by identity. This is so if neither its class nor a
    base class other than `object` defines `__eq__`.
    """
    return not any("__eq__" in vars(kind) for kind in type(value).__mro__[:-1])


def _apart(name: str, one: ResultArray, other: ResultArray, distance: Distance) -> str:
    kinds = f" ({one.dtype}, the reference's {other.dtype})" if one.dtype != other.dtype else ""
    if not other.epsilon and not one.epsilon:
        return f"{name}{kinds} is not equal to the reference's"
    if not np.isfinite(distance.relative):
        return f"{name}{kinds} is not finite where the reference's is, or the other way round"
    return f"{name}{kinds} is off by {_numbers(distance.ulp, distance.relative)}"


def _together(far: float, near: float, how: str, error: float | None, own: float | None) -> str:
    text = "the results are equal" if not far else f"the results agree: {_numbers(far, near)} apart{how}"
    if error is not None and own is not None and far:
        text += f"; {error:.1e} from float64, the reference {own:.1e}"
    return text


def _numbers(ulp: float, relative: float) -> str:
    return f"{ulp:,.0f} ulp, {relative:.1e} relatively" if ulp < 1e6 else f"{ulp:.0e} ulp, {relative:.1e} relatively"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else "< 1 %"


def _brief(value: object) -> str:
    if isinstance(value, ResultArray):
        return f"an array of {value.dtype}"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
