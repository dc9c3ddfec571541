"""What does launching a CUDA graph take the host, by its number of nodes, with and without the recorder cupti?

    python -m benchmarks.graph_nodes [--out FILE]     (needs a CUDA device)

Each graph is launched on an idle device, 25 times after 5. Graphs of models cost more to record for each node than
these of additions: see `unstall.what_if.undistort`.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.on_device import tell

if TYPE_CHECKING:
    import torch

NODES, LANES = (10, 50, 100, 200, 400, 800), (1, 8)
ROUNDS, SETTLING = 30, 5


def main() -> None:
    tell(__doc__, lambda: {"rows": _rows()})


def _rows() -> list[dict[str, object]]:
    from unstall.cupti.recorder import Cupti

    graphs = {(nodes, lanes): _graph(nodes, lanes) for nodes in NODES for lanes in LANES}
    before = _times_us(graphs)
    with tempfile.TemporaryDirectory() as folder:
        recorder = Cupti(Path(folder))
        recorder.start()
        recorded = _times_us(graphs)
        recorder.stop()
    after = _times_us(graphs)
    return [
        {
            "nodes": nodes,
            "lanes": lanes,
            "plain_us": round(min(before[nodes, lanes], after[nodes, lanes]), 1),
            "recorded_us": round(recorded[nodes, lanes], 1),
            "ns_a_node": round((recorded[nodes, lanes] - before[nodes, lanes]) / nodes * 1e3),
        }
        for nodes, lanes in graphs
    ]


def _graph(nodes: int, lanes: int) -> torch.cuda.CUDAGraph:
    """Returns a CUDA graph of `nodes` additions on `lanes` parallel branches."""
    import torch

    sums = [torch.zeros(256, device="cuda") for _ in range(lanes)]
    streams = [torch.cuda.Stream() for _ in range(lanes)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=streams[0]):
        for stream in streams[1:]:
            stream.wait_stream(streams[0])
        for node in range(nodes):
            with torch.cuda.stream(streams[node % lanes]):
                sums[node % lanes].add_(1)
        for stream in streams[1:]:
            streams[0].wait_stream(stream)
    return graph


def _times_us(graphs: dict[tuple[int, int], torch.cuda.CUDAGraph]) -> dict[tuple[int, int], float]:
    import torch

    def once(graph: torch.cuda.CUDAGraph) -> float:
        torch.cuda.synchronize()
        begun = time.perf_counter()
        graph.replay()
        return time.perf_counter() - begun

    return {
        key: statistics.median([once(graph) for _ in range(ROUNDS)][SETTLING:]) * 1e6 for key, graph in graphs.items()
    }


if __name__ == "__main__":
    main()
