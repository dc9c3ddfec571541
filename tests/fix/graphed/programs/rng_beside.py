"""What retries earn when another thread uses the host's random generators: `python -m fix.graphed.programs.rng_beside`,
in `tests/`. Takes about two minutes.

Counts programs of 150 calls, of 4 ms each, that are served by a graph. In the first three, another thread uses
`numpy.random`. In the last, the function itself does, unseen, beside a thread that sleeps, and does something else in
one call of ten: a graph of it is wrong.
"""

from __future__ import annotations

import argparse
import queue
import random
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import CodeType
from unittest import mock

import numpy as np
import torch
from fix.graphed.harness import on_tape

from unstall.fix.graphs import cache_entry
from unstall.fix.graphs.cache_entry import CacheEntry
from unstall.fix.graphs.examine.examined_call import Examined
from unstall.fix.graphs.examine.rng_use import RngUse
from unstall.fix.graphs.refusals import Refusal

CALLS = 150
CALL_SECONDS, BETWEEN_SECONDS = 0.004, 0.002

Work = Callable[[threading.Event], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=5, help="of each kind")
    count = parser.parse_args().programs
    warnings.simplefilter("ignore")
    print(f"{'served of ' + str(count):34}" + "".join(f"{name:>16}" for name in PROGRAMS))
    for name, way in WAYS.items():
        with way():
            served = [sum(program() for _ in range(count)) for program in PROGRAMS.values()]
        print(f"{name:34}" + "".join(f"{each:>16}" for each in served), flush=True)


def sleeps(over: threading.Event) -> None:
    over.wait()


def every_5_ms(over: threading.Event) -> None:
    while not over.wait(0.005):
        np.random.rand(4)


def at_first(over: threading.Event) -> None:
    end = time.monotonic() + 0.3
    while time.monotonic() < end and not over.wait(1e-4):
        np.random.rand(4)


def served_beside(work: Work, before: Callable[[], object] = lambda: None) -> bool:
    def function(x: torch.Tensor) -> torch.Tensor:
        time.sleep(CALL_SECONDS)
        return x.exp()

    fast, x = on_tape(function, strict=False), torch.ones(2)
    with _beside(work):
        for _ in range(CALLS):
            before()
            fast(x)
            time.sleep(BETWEEN_SECONDS)
    return bool(fast.stats().hits)


def served_beside_a_loader() -> bool:
    batches: queue.Queue[int] = queue.Queue(2)

    def load(over: threading.Event) -> None:
        while not over.is_set():
            np.random.rand(4)
            time.sleep(0.001)
            while not over.is_set():
                try:
                    batches.put(1, timeout=0.01)
                    break
                except queue.Full:
                    pass

    return served_beside(load, batches.get)


def served_though_it_draws() -> bool:
    np.random.seed(random.randrange(2**31))
    fast = on_tape(lambda x: x.exp() if np.random.rand() > 0.1 else x.sin().exp(), strict=False)
    with _beside(sleeps):
        for _ in range(CALLS):
            fast(torch.ones(2))
    return bool(fast.stats().hits)


@contextmanager
def _beside(work: Work) -> Iterator[None]:
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


_found = RngUse.found
_note_run = CacheEntry.note_run


def _ignored(self: RngUse, codes: Iterable[CodeType], *, beside: str = "") -> tuple[list[Refusal], list[Refusal]]:
    return _found(self, codes, beside=beside)[0], []


def _certain(self: RngUse, codes: Iterable[CodeType], *, beside: str = "") -> tuple[list[Refusal], list[Refusal]]:
    certain, uncertain = _found(self, codes, beside=beside)
    return certain + uncertain, []


def _never_again(self: CacheEntry, found: Examined, calls: int) -> Refusal | None:
    refusal = _note_run(self, found, calls)
    self.retry_at = 1 << 60
    return refusal


PROGRAMS: dict[str, Callable[[], bool]] = {
    "every 5 ms": lambda: served_beside(every_5_ms),
    "loads batches": served_beside_a_loader,
    "for 0.3 s": lambda: served_beside(at_first),
    "draws (wrong)": served_though_it_draws,
}
WAYS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "uncertain use is ignored": lambda: mock.patch.object(RngUse, "found", _ignored),
    "uncertain use is a refusal": lambda: mock.patch.object(RngUse, "found", _certain),
    "10 attempts": lambda: mock.patch.object(CacheEntry, "note_run", _never_again),
    "1 attempt, again at doubled calls": lambda: mock.patch.object(cache_entry, "MOST_UNCERTAIN", 1),
    "10 attempts, then at doubled calls": lambda: mock.patch.object(cache_entry, "MOST_UNCERTAIN", 10),
}

if __name__ == "__main__":
    main()
