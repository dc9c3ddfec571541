"""`Call`: counts what one test does, and compares that with the test's limits and with the baseline file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self

import pytest

from unstall.errors import SyncError
from unstall.guarding import regions
from unstall.guarding.kinds import Kind
from unstall.guarding.no_sync import no_sync
from unstall.testing.baseline import Baseline
from unstall.testing.counts_of_test import PROPERTIES, CountsOfTest
from unstall.testing.judging import Broken, judge, without_our_frames
from unstall.testing.limits import NO_GPU, MarkerLimit
from unstall.testing.sources import Wanted, source

_GROWTH: frozenset[Kind] = frozenset({"malloc", "library"})
"""Kinds of waits that are not counted: those in which torch's memory cache grows, and those in
which a CUDA library starts. Whether a test has them depends on the tests that ran before it.
"""


class Call:
    """A context manager that pytest enters around a test's own code.

    It counts what the test does on the GPU, and fails the test if that exceeds a limit of the
    test's markers or of the baseline.
    """

    def __init__(self, item: pytest.Item, limits: Mapping[str, MarkerLimit], baseline: Baseline | None) -> None:
        self._item = item
        self._baseline = baseline
        self._limits = limits
        self._guard = no_sync("error" if "no_sync" in self._limits else "count")
        self._guard.ignored = _GROWTH

    def __enter__(self) -> Self:
        self._source = source(
            Wanted(
                launches=self._baseline is not None or "limit_launches" in self._limits,
                memory=self._baseline is not None or "limit_device_memory" in self._limits,
                idle="limit_idle" in self._limits,
                races="no_race" in self._limits,
            )
        )
        self._guard.__enter__()
        regions.hold_in_all_contexts()  # async tests run in contexts of fixtures, or of unittest
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        refused: SyncError | None = None
        try:
            self._guard.__exit__(kind, error, trace)
        except SyncError as instead:  # a real GPU's driver refused the wait, which torch told in words of its own
            error = refused = instead
        seen = self._source.end()
        waits = self._guard.waits
        counts = CountsOfTest(
            gpu=seen.gpu or "",
            launches=seen.launches,
            syncs=self._guard.count if seen.sees_waits else None,
            reserved_bytes=seen.reserved_bytes,
            lines=dict(Counter(f"{wait.where} {wait.code or wait.operator}" for wait in waits)),
        )
        broken: list[Broken] = []
        if seen.gpu is None:
            counts = replace(counts, launches=None, unchecked=tuple(limit.text for limit in self._limits.values()))
        elif error is None:
            broken = judge(self._limits, counts, waits, self._source)
        elif isinstance(error, SyncError) and error.wait in waits:
            without_our_frames(error)
            broken = [Broken("no_sync", "")]
        if error is None and seen.gpu is not None and self._baseline is not None and self._baseline.fails:
            broken += self._baseline.increases(self._item.nodeid, counts, waits)
        counts = replace(counts, broken=tuple(each.limit for each in broken))
        if counts.used_gpu or self._limits or self._baseline is not None:
            kept = [each for each in self._item.user_properties if each[0] not in PROPERTIES]
            self._item.user_properties[:] = [*kept, *counts.properties()]
        if broken and error is None:
            pytest.fail("\n".join(each.text for each in broken), pytrace=False)
        if error is None and counts.unchecked:
            pytest.skip(f"passed, but {' and '.join(counts.unchecked)} not checked: {NO_GPU}")
        if refused is not None:
            raise refused from None
