"""When the watcher calls a program hung, and what it does then: with processes whose work the tests tell it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are launched on Linux alone")

from unstall.blaming.hangs import processes, watch  # noqa: E402
from unstall.blaming.hangs.processes import Found  # noqa: E402
from unstall.blaming.hangs.watch import LEAST_S, Wanted, Watcher  # noqa: E402
from unstall.blaming.result import Hang, Process, Standing  # noqa: E402

MAIN, CHILD = 1_000_001, 1_000_002
HUNG = Standing(stream="stream 0x7", waits="kernel", is_sure=True)
TICK_S = 2.0
AFTER_3_S = Wanted(3.0, end=True)


@dataclass
class World:
    """What processes have done, by their numbers, and which streams are not done; all of them have put work on the
    device."""

    home: Path
    launches: dict[int, int] = field(default_factory=dict)
    cpu_s: dict[int, float] = field(default_factory=dict)
    streams: tuple[Standing, ...] = ()
    folders: dict[Path, int] = field(default_factory=dict)
    sent: list[tuple[int, int]] = field(default_factory=list)
    told: list[Hang] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def process(self, pid: int, folder: str = "unstall-blame-a", **who: object) -> Path:
        path = self.home / folder
        path.mkdir(mode=0o700, exist_ok=True)
        (path / "process.json").write_text(json.dumps({"pid": pid, "parent": MAIN, "main_thread": 1, **who}))
        self.folders[path], self.launches[pid], self.cpu_s[pid] = pid, 1, 0.0
        return path

    def watcher(self, wanted: Wanted, tell: Any = None) -> Watcher:
        return Watcher(self.home / "unstall-blame-a", wanted, tell or self.told.append, self.said.append)


def tick(watcher: Watcher, times: int) -> None:
    """Lets this many ticks pass, each of two seconds."""
    for _ in range(times):
        watcher._looked = time.monotonic() - TICK_S
        watcher._tick()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path)

    def snapshot(found: Sequence[Found], quiet_s: Mapping[int, float], stuck: frozenset[int]) -> tuple[Process, ...]:
        return tuple(
            Process(
                pid=each.who.pid,
                state="waits" if each.who.pid in stuck else "moves",
                worked=True,
                streams=world.streams,
                quiet_ns=round(quiet_s.get(each.who.pid, 0) * 1e9),
            )
            for each in found
        )

    monkeypatch.setattr(processes, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(watch, "state_of", lambda pid, _started=0: "S" if pid in world.launches else "")
    monkeypatch.setattr(watch, "effort_of", lambda pid: (world.cpu_s[pid], 0, 0))
    monkeypatch.setattr(watch, "_pulse", lambda path: (bytes([world.launches[world.folders[path]]]), True, False))
    monkeypatch.setattr(watch, "snapshot", snapshot)
    monkeypatch.setattr(os, "kill", lambda pid, number: world.sent.append((pid, number)))
    return world


def test_a_program_in_which_nothing_moves_is_told_and_ended(world: World) -> None:
    world.process(MAIN)
    tick(world.watcher(AFTER_3_S), 4)
    assert (len(world.told), world.sent) == (1, [(MAIN, signal.SIGTERM)])


def test_a_child_that_is_idle_beside_a_program_that_works_is_no_hang(world: World) -> None:
    world.process(MAIN)
    world.process(CHILD, f"unstall-blame-a/{CHILD}")
    watcher = world.watcher(AFTER_3_S)
    for _ in range(5):
        world.launches[MAIN] += 1
        tick(watcher, 1)
    assert (world.told, world.sent) == ([], [])


def test_a_rank_that_works_in_a_run_of_its_own_keeps_the_others_from_being_hung(world: World) -> None:
    world.process(MAIN, group="g", rank=0)
    world.process(CHILD, "unstall-blame-b", group="g", rank=1)
    watcher = world.watcher(AFTER_3_S)
    for _ in range(5):
        world.launches[CHILD] += 1
        tick(watcher, 1)
    assert world.told == []


def test_a_rank_of_another_run_is_told_but_not_ended(world: World) -> None:
    world.process(MAIN, group="g", rank=0)
    world.process(CHILD, "unstall-blame-b", group="g", rank=1)
    tick(world.watcher(AFTER_3_S), 4)
    assert [each.pid for each in world.told[0].processes] == [MAIN, CHILD]
    assert world.sent == [(MAIN, signal.SIGTERM)]


def computes(world: World, watcher: Watcher, ticks: int) -> None:
    for _ in range(ticks):
        world.cpu_s[MAIN] += TICK_S
        tick(watcher, 1)


def test_a_program_that_computes_while_the_device_has_nothing_to_do_is_no_hang(world: World) -> None:
    world.process(MAIN)
    computes(world, world.watcher(AFTER_3_S), 8)
    assert (world.told, world.sent) == ([], [])


def test_a_program_that_has_computed_hangs_once_it_computes_no_more(world: World) -> None:
    world.process(MAIN)
    watcher = world.watcher(AFTER_3_S)
    computes(world, watcher, 4)
    tick(watcher, 1)
    before = len(world.told)
    tick(watcher, 2)
    assert (before, len(world.told)) == (0, 1)


def test_a_host_that_polls_a_stream_that_is_not_done_hangs(world: World) -> None:
    world.process(MAIN)
    world.streams = (HUNG,)
    computes(world, world.watcher(AFTER_3_S), 4)
    assert len(world.told) == 1


@pytest.mark.parametrize(("streams", "sent"), [((), []), ((HUNG,), [(MAIN, signal.SIGTERM)])])
def test_without_a_time_out_of_the_users_only_a_program_whose_device_hangs_is_ended(
    world: World, streams: tuple[Standing, ...], sent: list[tuple[int, int]]
) -> None:
    world.process(MAIN)
    world.streams = streams
    tick(world.watcher(Wanted(end=True)), int(LEAST_S / TICK_S) + 2)
    assert (len(world.told), world.told[0].ended, world.sent) == (1, bool(sent), sent)


def test_a_program_is_ended_although_its_report_cannot_be_written(world: World) -> None:
    def tell(_hang: Hang) -> None:
        raise OSError(28, "No space left on device")

    world.process(MAIN)
    watcher = world.watcher(AFTER_3_S, tell)
    tick(watcher, 4)
    assert world.sent == [(MAIN, signal.SIGTERM)]
    assert watcher.hang is not None
    assert watcher.hang.ended
    assert "the report failed: OSError: [Errno 28] No space left on device" in world.said[0]


def test_a_look_that_fails_is_told_once_and_the_next_ones_go_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.process(MAIN)
    looks: list[Path] = []

    def group_of(folder: Path) -> list[Found]:
        looks.append(folder)
        raise OSError("no descriptors left")

    monkeypatch.setattr(watch, "group_of", group_of)
    monkeypatch.setattr(watch, "_TICK_S", 0.01)
    with world.watcher(AFTER_3_S):
        until = time.monotonic() + 10
        while len(looks) < 3 and time.monotonic() < until:
            time.sleep(0.01)
    assert len(looks) >= 3
    assert world.said == ["whether the program hangs is not known: OSError: no descriptors left"]
