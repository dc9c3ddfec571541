"""Reads the shim's log and simulates it, for the threads that ask the virtual GPU something."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from unstall.errors import UnstallError
from unstall.figures import duration
from unstall.guest.ranks import speaker
from unstall.virtual.faults.fault_log import FaultLog
from unstall.virtual.log import LogSource, Stack, records_of, uses_of
from unstall.virtual.races import RaceLog
from unstall.virtual.simulation.simulate import Simulation
from unstall.virtual.simulation.stacks import costed, shown

_LONG_NS = 20_000_000_000  # of computing values, after which people wonder whether the program hangs


class LogReader:
    """Keeps a simulation up to date with the shim's log, one thread at a time.

    Attributes:
        simulation: The simulation of the log.
        lock: Is held while the simulation or anything else that was read is used or changed.
        names: The names of operators and annotations in the log.
        stacks: The Python stacks in the log, without frames of unstall itself.
        races: The accesses to memory, from which races are found.
        faults: The faults so far.
    """

    def __init__(
        self, source: LogSource, simulation: Simulation, after: Callable[[], None], *, tells_of_slow_values: bool
    ) -> None:
        """Begins a log of which nothing is read.

        Args:
            source: What provides the log: the shim, or an object of a test.
            simulation: A simulation for which nothing has happened.
            after: Is called when records were simulated, with the lock held.
            tells_of_slow_values: Whether to tell the user if the CPU takes long to compute values.
        """
        self._source = source
        self.simulation = simulation
        self._after = after
        self.lock = threading.RLock()
        self.names: list[str] = []
        self.stacks: list[Stack] = []
        self.races = RaceLog()
        self.faults = FaultLog()
        self._signatures = 0
        self._forked = False
        self._draining = False
        self._failure: BaseException | None = None
        self._computing_ns, self._tells = 0, tells_of_slow_values  # for how long values of tensors were computed

    @property
    def is_closed(self) -> bool:
        """Whether the log cannot be read now: during a call of `drain`, or in a forked child process."""
        return self._forked or self._draining

    def drain(self) -> None:
        """Simulates all records that the shim's log has. Signals with handlers in Python are
        delayed meanwhile: if a handler raised an error, records would be lost.

        During this call, the garbage collector may run code of the program that asks the virtual GPU
        something. The answer then knows only of the records before this call.
        """
        with self.lock:
            if self.is_closed:
                return
            self._draining = True
            began = self._source.now_ns()
            try:
                self._source.hold_signals()
                data, used, gone_events = self._source.take()
                if data and self._failure is None:
                    self._simulate(records_of(data), uses_of(used))
                self.simulation.forget(np.frombuffer(gone_events, np.int64).tolist())
            finally:
                self._draining = False
                self._source.release_signals()
                self.simulation.clock.leave_out(self._source.this_thread(), self._source.now_ns() - began)
            self._tell_of_slow_values()

    def up_to_date(self) -> None:
        """Simulates all records that the shim's log has. Raises UnstallError if the simulation failed, now or
        earlier.
        """
        self.drain()
        if self._failure is not None:
            raise UnstallError(
                f"the simulation of the virtual GPU broke off, and knows nothing of what came after: "
                f"{type(self._failure).__name__}: {self._failure}"
            ) from self._failure

    @contextmanager
    def simulated(self) -> Iterator[Simulation]:
        """Yields the simulation, with all records that the shim's log has. No other thread changes it
        in the block. Raises UnstallError if the simulation failed, now or earlier.
        """
        with self.lock:
            self.up_to_date()
            yield self.simulation

    def know(self) -> None:
        """Adds the signatures, stacks and names that are new in the shim's log."""
        signatures = self._source.signatures(self._signatures)
        self._signatures += len(signatures)
        stacks = self._source.stacks(len(self.stacks))
        self.stacks += [shown(stack) for stack in stacks]
        names = self._source.names(len(self.names))
        self.names += names
        # The costs of Python calls were measured with our frames in place of torch's, so only ours are left out.
        self.simulation.know(signatures, [costed(stack) for stack in stacks], names)

    def unknown_reads(self) -> list[Stack]:
        """Returns the stacks at which the program read values that were not computed, in order of the first read."""
        return self._stacks_of(self._source.unknown_reads())

    def assumed_finds(self) -> list[Stack]:
        """Returns the stacks at which the program searched values that were not computed, in order of the first
        search. Half of the elements are assumed to be found.
        """
        return self._stacks_of(self._source.assumed_finds())

    def divisions_by_zero(self) -> list[Stack]:
        """Returns the stacks at which the program divided integers by zero, in order of the first."""
        return self._stacks_of(self._source.divisions_by_zero())

    def forked(self) -> None:
        """Stops reading in a forked child process. There, nothing is logged any more, and the virtual
        clock does not advance.
        """
        self.lock = threading.RLock()
        self._forked = True

    def _stacks_of(self, numbers: Sequence[int]) -> list[Stack]:
        return [self.stacks[number] for number in numbers if number >= 0]

    def _simulate(self, records: np.ndarray, uses: np.ndarray) -> None:
        try:
            self.know()
            self._computing_ns += int(records["computing_ns"].sum())
            self.races.add(records, uses)
            self.faults.add(records, self._source.faults(self.faults.known))
            self.simulation.feed(records, uses)
            self.races.placed(self.simulation.requests.take_placed())
            self._after()
        except BaseException as error:
            self._failure = error
            raise

    def _tell_of_slow_values(self) -> None:
        """Tells the user, once, if computing the values of tensors on the CPU takes long."""
        if self._computing_ns < _LONG_NS or not self._tells:
            return
        self._tells = False
        print(
            f"{speaker(os.environ)}computing the values of tensors took {duration(self._computing_ns)} so far, on "
            "this machine's CPU: --numerics skip leaves out the values of large tensors",
            file=sys.stderr,
            flush=True,
        )
