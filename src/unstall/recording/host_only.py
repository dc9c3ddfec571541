"""Steps of which only the host is recorded: when its calls to the driver begin and end.

What a recorder costs each launch of a recorded step is in none of these. They tell how long the host takes without it;
the trace says so of the steps that were recorded with it (`host_times.py`).
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from unstall.cupti.driver_calls import DRIVER
from unstall.recording.journal import Journal

try:
    from unstall.recording import _interpose
except ImportError:
    _interpose = None  # type: ignore[assignment]  # built only on 64-bit Linux, where there is a C compiler

CALLS = "host_only.bin"
SETTLING = 1  # steps: in the first one the code that the recorder has pushed out of the caches comes back
TIMES = 4  # as many steps as were recorded with the device,
_MOST_STEPS = 200  # and no more than tell a median well,
_LONG_NS = 5_000_000_000  # nor than 2, 4, 8, … once they have taken so long
_DRIVER = "libcuda.so.1"
_MOST_CALLS = 2 << 20
_CLOCK_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")


class HostOnly:
    """Steps in a row, from `start` to `stop`; the journal then has their borders, the folder their calls."""

    def __init__(self, folder: Path, library: str = _DRIVER) -> None:
        """`library` is the driver's, or what stands for it."""
        self._folder = folder
        self._library = library
        self._marks_ns: list[int] = []
        self._steps = 0
        self._started = False
        self._by_counter = _counter_is_clock()

    def start(self, recorded: int) -> bool:
        """Time calls from now on, after so many steps with the device. False where that cannot be done here."""
        self._steps = min(TIMES * recorded, _MOST_STEPS) + SETTLING
        try:
            found = _interpose.start(self._library, DRIVER, _MOST_CALLS, self._by_counter) if _interpose else 0
            self._started = found > 0
        except (OSError, ValueError, RuntimeError):
            return False
        except BaseException:  # Ctrl-C, which is told of once the search is over
            with suppress(RuntimeError):
                _interpose.stop()
            raise
        return self._started

    def add(self, at_ns: int) -> bool:
        """A border between steps is here. True if it is the last one: there were enough, or they are long.

        How long they are is asked only once in a while, so that the ranks of a distributed program stop together, as a
        rule: each asks its own clock.
        """
        self._marks_ns.append(at_ns)
        steps = len(self._marks_ns) - 1
        asked = steps > 1 and steps.bit_count() == 1
        return steps >= self._steps or (asked and at_ns - self._marks_ns[0] >= _LONG_NS)

    def stop(self, journal: Journal) -> None:
        """Time no more, if it does: all pointers of the program are what they were."""
        if self._started:
            rows, lost = _interpose.stop()
            self._started = False  # only now: whoever is interrupted before may try again
            if self._by_counter and not _counter_is_clock():  # the kernel trusts it no more
                rows = b""
            (self._folder / CALLS).write_bytes(rows)
            journal.write("host_only", marks_ns=self._marks_ns, lost=lost)


def _counter_is_clock() -> bool:
    """Whether the kernel makes its clock of the processor's counter: it then ticks evenly, and as one in all cores."""
    try:
        return _CLOCK_SOURCE.read_text().strip() == "tsc"
    except (OSError, UnicodeError):
        return False
