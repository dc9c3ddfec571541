"""The cache entries of one graphed function, and the eviction of their graphs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from unstall.fix.graphs.cache_entry import CacheEntry
from unstall.fix.graphs.call_arguments import CallArguments, Key
from unstall.fix.graphs.guarded_graph import GuardedGraph

_ENTRIES_A_GRAPH = 16


class GraphCache:
    """The cache entries of a graphed function. An entry has the graphs that serve all calls with the same key of
    arguments. The entries are sorted by the time of their last use: the entry that was used last is at the end. All
    entries together have at most `max_graphs` graphs."""

    def __init__(self, max_graphs: int) -> None:
        self._max_graphs = max_graphs
        self._entries: OrderedDict[Key, CacheEntry] = OrderedDict()

    def entry(self, call: CallArguments) -> CacheEntry:
        entry = self._entries.get(call.key)
        if entry is None:
            entry = self._entries[call.key] = CacheEntry(call.others, tuple(tuple(t.shape) for t in call.tensors))
            if call.others:  # the entry keeps them alive; drop old ones if each call has new ones
                idle = [key for key, each in self._entries.items() if each.others and not each.graphs]
                for key in idle[: -self._max_graphs]:
                    del self._entries[key]
            while len(self._entries) > _ENTRIES_A_GRAPH * self._max_graphs:
                self._entries.popitem(last=False)
        self._entries.move_to_end(call.key)
        return entry

    def graphs(self) -> Iterator[tuple[CacheEntry, GuardedGraph]]:
        return ((entry, graph) for entry in self._entries.values() for graph in entry.graphs)

    def evict(self, newest: CacheEntry) -> int:
        """Drops graphs, least recently used first, until at most `max_graphs` graphs remain. Keeps at least one graph
        of the cache entry `newest`. Returns how many graphs were dropped."""
        excess = sum(len(entry.graphs) for entry in self._entries.values()) - self._max_graphs
        evicted = 0
        for entry in self._entries.values():  # least recently used first
            while evicted < excess and len(entry.graphs) > (entry is newest):
                entry.evict_one()
                evicted += 1
        return evicted
