"""PYTORCH_ALLOC_CONF, and the sizes of blocks and segments."""

from __future__ import annotations

import pytest

from unstall.errors import UsageError
from unstall.virtual.allocator.settings import MIB, UNLIMITED, AllocatorSettings, checked_settings_text

DEFAULT = AllocatorSettings()


@pytest.mark.parametrize(
    ("requested", "block"), [(1, 512), (512, 512), (513, 1024), (MIB - 1, MIB), (MIB + 1, MIB + 512)]
)
def test_a_block_is_a_multiple_of_512_bytes(requested: int, block: int) -> None:
    assert DEFAULT.block_size(requested) == block


@pytest.mark.parametrize(
    ("block", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (33_554_432, 33_554_432),
    ],
)
def test_a_segment_is_2_mib_or_20_mib_or_a_multiple_of_2_mib(block: int, segment: int) -> None:
    assert DEFAULT.segment_size(block) == segment


@pytest.mark.parametrize(
    ("requested", "block"),
    [(2048, 2048), (2049, 2560), (1200, 1536), (5000, 5120), (9 * MIB, 10 * MIB), (8 * MIB, 8 * MIB)],
)
def test_roundup_power2_divisions_divides_the_space_between_two_powers(requested: int, block: int) -> None:
    assert AllocatorSettings.parse("roundup_power2_divisions:4").block_size(requested) == block


def test_divisions_by_size_hold_from_their_size_on_and_the_first_below_it() -> None:
    settings = AllocatorSettings.parse("roundup_power2_divisions:[4:2,16:8,>:1]")
    assert settings.roundup_power2_divisions == (2, 2, 2, 0, 8, *[1] * 11)
    assert settings.block_size(5 * MIB) == 6 * MIB
    assert settings.block_size(9 * MIB + 1) == 9 * MIB + 512
    assert settings.block_size(17 * MIB) == 18 * MIB


def test_every_setting_of_the_device_is_read() -> None:
    text = (
        "max_split_size_mb:64, max_non_split_rounding_mb:32, garbage_collection_threshold:0.6,"
        "expandable_segments:True,per_process_memory_fraction:0.5,large_segment_size_mb:24,pinned_use_background_threads:True"
    )
    assert AllocatorSettings.parse(text) == AllocatorSettings(
        max_split_size=64 * MIB,
        max_non_split_rounding=32 * MIB,
        large_segment=24 * MIB,
        roundup_power2_divisions=(1,) * 16,
        garbage_collection_threshold=0.6,
        expandable_segments=True,
        per_process_memory_fraction=0.5,
    )
    assert AllocatorSettings.parse("").max_split_size == UNLIMITED


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_split_size:64", "unrecognized key 'max_split_size'"),
        ("max_split_size_mb:19", "max_split_size_mb must be at least 20, not 19"),
        ("max_split_size_mb:many", "max_split_size_mb must be a whole number, not 'many'"),
        ("garbage_collection_threshold:1.5", "must lie between 0 and 1, not 1.5"),
        ("expandable_segments:yes", "expandable_segments must be True or False, not 'yes'"),
        ("roundup_power2_divisions:3", "must be powers of two, not 3"),
        ("expandable_segments", "'expandable_segments' is not key:value"),
        ("backend:cudaMallocAsync", "the backend 'native' only, not 'cudaMallocAsync'"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        AllocatorSettings.parse(text)


def test_a_device_without_a_cache_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
    with pytest.raises(UsageError, match="PYTORCH_NO_CUDA_MEMORY_CACHING is set"):
        checked_settings_text()
