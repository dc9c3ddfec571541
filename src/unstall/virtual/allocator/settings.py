"""The settings in PYTORCH_ALLOC_CONF, and the sizes of blocks and segments that follow from them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from unstall.errors import UsageError

SETTINGS_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""The environment variables from which torch reads the settings. The first one that is set counts."""
MIB = 1 << 20
MIN_BLOCK = 512
"""The size of every block, in bytes, is a multiple of this."""
SMALL_SIZE = MIB
"""The size in bytes of the largest block that comes from the pool for small requests."""
SMALL_SEGMENT = 2 * MIB
MIN_LARGE_SEGMENT_REQUEST = 10 * MIB
"""A request of at least so many bytes gets a segment of its own. The size of that segment is
rounded up to a multiple of `LARGE_ROUNDING`.
"""
LARGE_ROUNDING = 2 * MIB
LARGE_SEGMENT = 20 * MIB
UNLIMITED = (1 << 64) - 1
_NATIVE = "native"
_NO_CACHING = "PYTORCH_NO_CUDA_MEMORY_CACHING"
INTERVALS = 16
"""How many numbers roundup_power2_divisions has: one for each power of two from 1 MiB on."""

READ_KEYS = frozenset(
    {
        "expandable_segments",
        "garbage_collection_threshold",
        "large_segment_size_mb",
        "max_non_split_rounding_mb",
        "max_split_size_mb",
        "per_process_memory_fraction",
        "roundup_power2_divisions",
    }
)
IGNORED_KEYS = frozenset(
    {
        "backend",
        "graph_capture_record_stream_reuse",
        "pinned_free_catch_all",
        "pinned_max_cached_size_mb",
        "pinned_max_round_threshold_mb",
        "pinned_num_register_threads",
        "pinned_reserve_segment_size_mb",
        "pinned_use_background_threads",
        "pinned_use_cuda_host_register",
        "release_lock_on_cudamalloc",
        "throw_on_cudamalloc_oom",
    }
)
"""Keys that torch knows and that do not change which block a request gets."""


@dataclass(frozen=True)
class AllocatorSettings:
    """The settings of torch's allocator for device memory. Sizes are in bytes. The defaults are torch's."""

    max_split_size: int = UNLIMITED
    max_non_split_rounding: int = LARGE_SEGMENT
    large_segment: int = LARGE_SEGMENT
    roundup_power2_divisions: tuple[int, ...] = (0,) * INTERVALS
    garbage_collection_threshold: float = 0.0
    expandable_segments: bool = False
    per_process_memory_fraction: float = 1.0

    @classmethod
    def parse(cls, text: str) -> AllocatorSettings:
        """Returns the settings in a text such as "key:value,key:[a:1,b:2]", the form of
        PYTORCH_ALLOC_CONF.

        Raises:
            ValueError: A key is unknown, or a value is not allowed or not modelled.
        """
        values = _pairs(text)
        if values.get("backend", _NATIVE) != _NATIVE:
            raise ValueError(f"the virtual GPU models the backend {_NATIVE!r} only, not {values['backend']!r}")
        large_segment = _megabytes(values, "large_segment_size_mb", default=LARGE_SEGMENT, at_least=11)
        smallest_split = large_segment // MIB
        return cls(
            max_split_size=_megabytes(values, "max_split_size_mb", default=UNLIMITED, at_least=smallest_split),
            max_non_split_rounding=_megabytes(
                values, "max_non_split_rounding_mb", default=large_segment, at_least=smallest_split
            ),
            large_segment=large_segment,
            roundup_power2_divisions=_divisions(values.get("roundup_power2_divisions", "1")),
            garbage_collection_threshold=_fraction(values, "garbage_collection_threshold", default=0.0),
            expandable_segments=_boolean(values, "expandable_segments"),
            per_process_memory_fraction=_fraction(values, "per_process_memory_fraction", default=1.0),
        )

    @property
    def splits_any_block(self) -> bool:
        """Whether every free block that is large enough can serve a request of its pool.

        If True, the request gets its size, rounded up to a multiple of `MIN_BLOCK`; or the whole
        block, if the rest is too small to be a block.
        """
        rounds_up = max(self.roundup_power2_divisions) > 1
        return self.max_split_size == UNLIMITED and not rounds_up and not self.expandable_segments

    def block_size(self, requested: int) -> int:
        """Returns how large the block for a request of `requested` bytes is."""
        if requested < MIN_BLOCK:
            return MIN_BLOCK
        interval = min(max(requested.bit_length() - MIB.bit_length(), 0), INTERVALS - 1)
        divisions = self.roundup_power2_divisions[interval]
        if divisions > 1 and requested > MIN_BLOCK * divisions:
            return _next_division(requested, divisions)
        return round_up(requested, MIN_BLOCK)

    def segment_size(self, block_size: int) -> int:
        """Returns how large the segment is that has to be reserved for a block of `block_size` bytes."""
        if block_size <= SMALL_SIZE:
            return SMALL_SEGMENT
        if block_size < MIN_LARGE_SEGMENT_REQUEST:
            return self.large_segment
        return round_up(block_size, LARGE_ROUNDING)


def round_up(size: int, multiple: int) -> int:
    """Returns the smallest multiple of `multiple` that is at least `size`."""
    return -(-size // multiple) * multiple


def _next_division(size: int, divisions: int) -> int:
    floor = 1 << (size.bit_length() - 1)
    if floor == size:
        return size
    return round_up(size, floor // divisions)


def _pairs(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for item in re.findall(r"(?:\[[^\]]*\]|[^,\[])+", re.sub(r"\s", "", text)):
        key, colon, value = item.partition(":")
        if not colon or not value:
            raise ValueError(f"allocator settings: {item!r} is not key:value")
        if key not in READ_KEYS and key not in IGNORED_KEYS:
            raise ValueError(f"allocator settings: unrecognized key {key!r}")
        values[key] = value
    return values


def _number(key: str, text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"allocator settings: {key} must be a whole number, not {text!r}")
    return int(text)


def _megabytes(values: dict[str, str], key: str, *, default: int, at_least: int) -> int:
    if key not in values:
        return default
    megabytes = _number(key, values[key])
    if megabytes < at_least:
        raise ValueError(f"allocator settings: {key} must be at least {at_least}, not {megabytes}")
    return min(megabytes, UNLIMITED // MIB) * MIB


def _fraction(values: dict[str, str], key: str, *, default: float) -> float:
    if key not in values:
        return default
    try:
        fraction = float(values[key])
    except ValueError:
        raise ValueError(f"allocator settings: {key} must be a number, not {values[key]!r}") from None
    if not 0 < fraction < 1 and fraction != default:
        raise ValueError(f"allocator settings: {key} must lie between 0 and 1, not {values[key]}")
    return fraction


def _boolean(values: dict[str, str], key: str) -> bool:
    value = values.get(key, "False")
    if value not in ("True", "False"):
        raise ValueError(f"allocator settings: {key} must be True or False, not {value!r}")
    return value == "True"


def _division_count(text: str) -> int:
    count = _number("roundup_power2_divisions", text)
    if count & (count - 1):
        raise ValueError(f"allocator settings: roundup_power2_divisions must be powers of two, not {count}")
    return count


def _divisions(text: str) -> tuple[int, ...]:
    """Returns roundup_power2_divisions, read from a text: one number for all intervals of sizes, or
    pairs such as "[256:1,512:2,>:4]".

    A pair is the size in MB at which an interval begins, and the number for this interval. ">"
    stands for all larger intervals. As in torch, the first number also counts for smaller sizes,
    and an interval that is not listed between two others gets 0.
    """
    if not text.startswith("["):
        return (_division_count(text),) * INTERVALS
    counts = [0] * INTERVALS
    last = 0
    for place, item in enumerate(text.strip("[]").split(",")):
        boundary, _, count_text = item.partition(":")
        count = _division_count(count_text)
        if boundary == ">":
            counts[last + 1 :] = [count] * (INTERVALS - last - 1)
            continue
        megabytes = _division_count(boundary)
        last = min(max(megabytes.bit_length() - 1, 0), INTERVALS - 1)
        if place == 0:
            counts[:last] = [count] * last
        counts[last] = count
    return tuple(counts)


def settings_text() -> str:
    """Returns the text of the allocator's settings in the environment variable PYTORCH_ALLOC_CONF,
    or else in PYTORCH_CUDA_ALLOC_CONF; "" if neither is set.
    """
    return os.environ.get(_variable(), "")


def checked_settings_text() -> str:
    """Returns the text of the allocator's settings in the environment variable PYTORCH_ALLOC_CONF,
    or else in PYTORCH_CUDA_ALLOC_CONF; "" if neither is set.

    Raises:
        UsageError: torch would reject these settings, or the virtual GPU does not model them.
    """
    if os.environ.get(_NO_CACHING):
        raise UsageError(f"{_NO_CACHING} is set: the virtual GPU models torch's caching allocator only; unset it")
    text = settings_text()
    try:
        AllocatorSettings.parse(text)
    except ValueError as error:
        raise UsageError(f"{_variable()}={text}: {error}") from None
    return text


def _variable() -> str:
    return next((name for name in SETTINGS_VARIABLES if os.environ.get(name)), SETTINGS_VARIABLES[0])
