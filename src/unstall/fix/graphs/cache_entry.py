"""The cache entry of all calls with one key: a state machine, and the graphs that serve these calls.

                                  ┌─ unusable, evicted ─┐ ┌─ guards failed, evicted ─┬────────────────────────┐
                                  │                     ▼ ▼                          │                        │
    [ DEFERRED ]◀── uncertain ──[          UNSEEN          ]────── clean ─────▶[ OBSERVED ]── captured ──▶[ SERVING ]
          │                       ▲                   │                              │                        │
          └───── calls doubled ───┘                   └────────── refused ───────────┴─────────┬──────────────┘
                                                                                               ▼
                                                                                          [ REFUSED ]

If the guards of one of the entry's graphs hold, the call is served by a replay of this graph. Otherwise, the state
decides. In UNSEEN, the call is observed. In OBSERVED, the call is captured. In DEFERRED and REFUSED, the call runs
eagerly. In SERVING, the state first changes to UNSEEN, or to REFUSED if guards have failed too often, and then the new
state decides. Calls that run eagerly for other reasons (a graph is busy, arguments share memory) do not change the
state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from unstall.fix.graphs.examine.examined_call import Examined
from unstall.fix.graphs.guarded_graph import GuardedGraph
from unstall.fix.graphs.refusals import Refusal, changing

MOST_UNCERTAIN = 10
"""How many consecutive observed calls may be uncertain. A call is uncertain if a random number generator (RNG) was used
during the call, perhaps by another thread. After this many calls, calls run eagerly until their number has doubled.

Each measurement has ten programs. If a thread loads batches, graphs serve all ten programs. If one uncertain call were
a reason to refuse, graphs would serve only two programs. If a thread uses `numpy.random` for its first 0.3 s, graphs
serve all ten programs. Without the retry after doubling, graphs would serve only three programs. If uncertain RNG use
were ignored, graphs would give wrong results for seven of ten functions that use an RNG themselves. To reproduce:
`python -m fix.graphed.programs.rng_beside` in `tests/`.
"""
_VARIANTS = 2  # graphs of one key for different states, such as a module's train and eval modes
_MOST_ATTEMPTS = 3  # captures in a row whose guards failed before they served `_FEW_HITS` calls
_FEW_HITS = 10


class State(Enum):
    UNSEEN = "the next call is observed"
    OBSERVED = "the next call is captured"
    SERVING = "calls are replayed while guards hold"
    DEFERRED = "calls run as they are until their number has doubled"
    REFUSED = "calls run as they are"


class Trigger(Enum):
    CLEAN = "clean"  # an observed call can be captured
    UNUSABLE = "unusable"  # an observed call changed Python-side state once, or its RNG use is uncertain
    UNCERTAIN = "uncertain"  # RNG use was uncertain too often
    CALLS_DOUBLED = "calls doubled"
    CAPTURED = "captured"
    GUARDS_FAILED = "guards failed"
    EVICTED = "evicted"  # its last graph, to make room for another of the function
    REFUSED = "refused"


TRANSITIONS = {
    (State.UNSEEN, Trigger.UNUSABLE): State.UNSEEN,
    (State.UNSEEN, Trigger.EVICTED): State.UNSEEN,
    (State.UNSEEN, Trigger.CLEAN): State.OBSERVED,
    (State.UNSEEN, Trigger.UNCERTAIN): State.DEFERRED,
    (State.UNSEEN, Trigger.REFUSED): State.REFUSED,
    (State.DEFERRED, Trigger.CALLS_DOUBLED): State.UNSEEN,
    (State.OBSERVED, Trigger.CAPTURED): State.SERVING,
    (State.OBSERVED, Trigger.GUARDS_FAILED): State.UNSEEN,
    (State.OBSERVED, Trigger.EVICTED): State.UNSEEN,
    (State.OBSERVED, Trigger.REFUSED): State.REFUSED,
    (State.SERVING, Trigger.GUARDS_FAILED): State.UNSEEN,
    (State.SERVING, Trigger.EVICTED): State.UNSEEN,
    (State.SERVING, Trigger.REFUSED): State.REFUSED,
}
"""The next state for each pair of state and trigger. A pair that is not listed is a bug and raises a KeyError."""


@dataclass(slots=True)
class CacheEntry:
    """What is known about all calls of a function with the same key of arguments: a state (UNSEEN, OBSERVED, SERVING,
    DEFERRED or REFUSED), and the graphs that serve these calls.

    Attributes:
        others: Objects whose ids are in the key. They are kept alive, so that no id is used twice.
        shapes: The shapes of the input tensors.
        state: The state, which says what happens in the next call that no graph serves.
        calls: The number of calls with this key.
        examined: What was observed in the last observed call, for the capture. None if there is nothing to capture.
        graphs: The graphs. The one that was used last is first.
        refusal: Why calls run eagerly now, or why they did until the last change of the state. None if there is no
            reason.
        retry_at: In the state DEFERRED: the number of the function's call that is observed again.
    """

    others: list[object]
    shapes: tuple[tuple[int, ...], ...]
    state: State = State.UNSEEN
    calls: int = 0
    examined: Examined | None = None
    graphs: list[GuardedGraph] = field(default_factory=list)
    refusal: Refusal | None = None
    retry_at: int = 0
    _changing_runs: int = 0
    _uncertain_runs: int = 0
    _failed_attempts: int = 0

    @property
    def busy(self) -> bool:
        """Whether a backward pass that has not run yet may need the memory of one of the graphs of this entry."""
        return any(graph.busy for graph in self.graphs)

    def note_run(self, found: Examined, calls: int) -> Refusal | None:
        """Changes the state of this entry after a call was observed.

        If calls run eagerly from now on, returns the reason. Otherwise, returns None.

        Args:
            found: What was observed.
            calls: How often the function has been called.
        """
        seen = found.seen
        self.refusal = None
        if seen.refusals:
            return self.refuse(seen.refusals[0])
        self._changing_runs = self._changing_runs + 1 if found.changed else 0
        self._uncertain_runs = self._uncertain_runs + 1 if seen.uncertain else 0
        if self._changing_runs > 1:  # the first time may fill a cache
            reason = f"it changes the program's own state at each call, and a graph would not: {found.changed[0]}"
            return self.refuse(Refusal(reason, None, "do that outside, or write into a tensor"))
        if self._uncertain_runs >= MOST_UNCERTAIN:
            self._move(Trigger.UNCERTAIN)
            self.retry_at = 2 * calls
            self.refusal = seen.uncertain[0]
            return self.refusal
        if found.changed or seen.uncertain:
            self._move(Trigger.UNUSABLE)
        else:
            self._move(Trigger.CLEAN)
            self.examined = found
        return None

    def retry(self) -> None:
        """Leaves the state DEFERRED, in which calls run eagerly. The next call is then observed again."""
        self._move(Trigger.CALLS_DOUBLED)

    def note_captured(self, graph: GuardedGraph) -> None:
        self._move(Trigger.CAPTURED)
        self.graphs.insert(0, graph)

    def note_replayed(self, graph: GuardedGraph) -> None:
        if self.graphs[0] is not graph:
            self.graphs.remove(graph)
            self.graphs.insert(0, graph)
        self._changing_runs = 0

    def note_guards_failed(self, what: Callable[[], str]) -> Refusal | None:
        """Changes the state of this entry after the guards of its graphs failed: some state that a graph relies on has
        changed. If guards have failed soon after each of the last three captures, calls run eagerly from now on, and
        the reason is returned. Otherwise returns None. `what` is called for a description of what changed."""
        wasted = self.state is State.OBSERVED or self.graphs[0].hits < _FEW_HITS
        self._failed_attempts = self._failed_attempts + 1 if wasted else 0
        if self._failed_attempts >= _MOST_ATTEMPTS:
            return self.refuse(changing(what()))
        self._move(Trigger.GUARDS_FAILED)
        self.examined = None
        del self.graphs[_VARIANTS - 1 :]
        return None

    def evict_one(self) -> None:
        """Drops the graph of this entry that was used least recently."""
        self.graphs.pop()
        if not self.graphs:
            self._move(Trigger.EVICTED)
            self.examined = None

    def refuse(self, refusal: Refusal) -> Refusal:
        self._move(Trigger.REFUSED)
        self.refusal = refusal
        self.graphs.clear()
        return refusal

    def _move(self, trigger: Trigger) -> None:
        self.state = TRANSITIONS[self.state, trigger]
