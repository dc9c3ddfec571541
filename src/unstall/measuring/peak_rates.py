"""Measures the highest rates that a device reaches: the bandwidth of a large copy, and the rate of a matrix product."""

from __future__ import annotations

from collections.abc import Callable

from unstall.figures import size
from unstall.measuring.adapters import Adapter
from unstall.measuring.cache import Caching
from unstall.measuring.calls.function_call import FunctionCall
from unstall.measuring.calls.inspection import Inspection
from unstall.measuring.device_time.methods import device_time
from unstall.measuring.host_time import by_itself
from unstall.measuring.measurement import Rate
from unstall.measuring.sampling import Until

_AT_MOST = 105  # percent
_UNTIL = Until(rel_ci=0.01, seconds=0.3)
_known: dict[tuple[str, str], tuple[float, str]] = {}


def bandwidth(adapter: Adapter, size_bytes: int, ns: float) -> Rate:
    """Returns the bandwidth of a call that moves `size_bytes` in `ns`. Its ceiling is the bandwidth
    of a large copy on this device.
    """
    ceiling, of = _ceiling(adapter, "copy", adapter.copying)
    return Rate(1e9 * size_bytes / ns if ns else 0.0, "B/s", ceiling or None, of and f"{of} a large copy")


def rate(adapter: Adapter, flops: int, ns: float, inspection: Inspection) -> Rate:
    """Returns the rate of a call that does `flops` floating-point operations in `ns`.

    Its ceiling is the rate of a matrix product on this device, in the dtype of the call's largest
    floating-point input.
    """
    kind = floating(inspection)
    ceiling, of = _ceiling(adapter, kind, lambda: adapter.multiplying(kind))
    return Rate(1e9 * flops / ns if ns else 0.0, "FLOP/s", ceiling or None, of and f"{of} a product in {kind}")


def beyond(adapter: Adapter, size_bytes: int | None, bandwidth: Rate | None, rate: Rate | None) -> list[str]:
    """Returns one sentence for each rate that is clearly higher than its ceiling, with the likely
    cause.

    Args:
        adapter: The adapter of the device.
        size_bytes: How many bytes the caller says that a call moves, or None.
        bandwidth: The bandwidth of the call, or None.
        rate: The rate of the call's floating-point operations, or None.
    """
    found = []
    if bandwidth is not None and (bandwidth.percent or 0) > _AT_MOST:
        cache = 0 if adapter.virtual else adapter.cache_bytes
        more = "more bytes a second than a large copy moves"
        if size_bytes is not None and size_bytes <= cache:
            found.append(
                f"{more}: {size(size_bytes)} fit the cache ({size(cache)}), and the memory is not asked for them"
            )
        else:
            found.append(
                f"{more}: the call may move less than `bytes` says{', or some of it is in the cache' if cache else ''}"
            )
    if rate is not None and (rate.percent or 0) > _AT_MOST:
        found.append("more operations a second than a product of matrices: the call may do less than `flops` says")
    return found


def floating(inspection: Inspection) -> str:
    """Returns the dtype of the call's largest floating-point input, or "float32" if the call has no such input."""
    kinds = [
        (array.bytes, str(getattr(array.value, "dtype", "")).removeprefix("torch.")) for array in inspection.inputs
    ]
    return max((each for each in kinds if "float" in each[1]), default=(0, "float32"))[1]


def _ceiling(
    adapter: Adapter, what: str, make: Callable[[], tuple[Callable[[], object], int] | None]
) -> tuple[float, str]:
    key = f"{adapter.name} {adapter.device_name} {adapter.virtual}", what
    if key not in _known:
        _known[key] = _measured(adapter, make)
    return _known[key]


def _measured(adapter: Adapter, make: Callable[[], tuple[Callable[[], object], int] | None]) -> tuple[float, str]:
    made = make()
    if made is None:
        return 0.0, ""
    run, amount = made
    caching = Caching(FunctionCall(run), "hot", adapter)
    adapter.wait(run())
    sampled = None
    if adapter.asynchronous:
        sampled = device_time(caching, adapter, "auto", 1e6, _UNTIL).device
    sampled = sampled or by_itself(caching, adapter, _UNTIL)
    return 1e9 * amount / sampled.spread.median, "as the model has it, of" if adapter.virtual else "measured here, of"
