"""The memory that cuDNN asks for as the workspace of recurrent layers, for many shapes, on a real GPU.

    python -m benchmarks.recurrent_workspaces --out FILE

What an H100 took is benchmarks/results/recurrent_workspaces_h100.json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.on_device import tell

_LARGE = 4_000_000  # bytes: a workspace has at least 8 MiB a layer, a result less
_OTHERS = ((0, 80), (0, 23), (1, 32), (1, 5), (2, 200), (2, 600), (4, 1), (4, 3))
"""Other sizes: the position in `(steps, batch, inputs, hidden, layers)`, and the size there."""


def main() -> None:
    tell(__doc__, _figures)


def _figures() -> dict[str, object]:
    import torch

    calls = [call | {"bytes": _workspaces(**call)} for call in _calls()]
    return {"cudnn": torch.backends.cudnn.version(), "calls": calls}


def _calls() -> Iterator[dict[str, Any]]:
    for kind in ("LSTM", "GRU", "RNN"):
        for both in (False, True):
            for hidden in (64, 512):
                base = (40, 16, 96, hidden, 2)
                shapes = [base, *((*base[:at], size, *base[at + 1 :]) for at, size in _OTHERS)]
                shapes += [(40, 16, 96, other, 2) for other in (hidden + 32, hidden * 2, 160, 256)]
                plain: dict[str, Any] = {
                    "kind": kind,
                    "dtype": "float32",
                    "both": both,
                    "packed": False,
                    "dropout": 0.0,
                }
                yield from (plain | {"sizes": sizes} for sizes in shapes)
                yield plain | {"sizes": base, "packed": True}
                yield plain | {"sizes": base, "dropout": 0.3}
                for dtype in ("float16", "bfloat16"):
                    yield from (plain | {"sizes": sizes, "dtype": dtype} for sizes in (base, (80, 32, 200, hidden, 3)))


def _workspaces(
    kind: str, sizes: tuple[int, ...], dtype: str, both: bool, packed: bool, dropout: float
) -> tuple[int, int]:
    """Returns the bytes of the workspaces of a layer's forward and backward pass."""
    import torch
    from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

    steps, batch, inputs, hidden, layers = sizes
    make = getattr(torch.nn, kind)
    layer = make(inputs, hidden, layers, bidirectional=both, dropout=dropout).cuda().to(getattr(torch, dtype))
    x = torch.randn(steps, batch, inputs, device="cuda", dtype=getattr(torch, dtype), requires_grad=True)
    given: Any = x
    if packed:
        lengths = [max(1, steps - at * steps // (2 * batch)) for at in range(batch)]
        padded = pack_padded_sequence(x, lengths)
        given = PackedSequence(padded.data.detach().requires_grad_(), padded.batch_sizes)

    def forward() -> torch.Tensor:
        result: Any = layer(given)[0]
        values: torch.Tensor = result.data if packed else result
        return values

    loss = forward().sum()
    loss.backward()
    kept: list[torch.Tensor] = []
    forward_bytes = _largest(lambda: kept.append(forward()))
    loss = kept[0].sum()
    return forward_bytes, _largest(loss.backward)


def _largest(run: Callable[[], object]) -> int:
    """Returns the bytes of the largest allocation that `run` makes and frees."""
    import torch

    torch.cuda.memory._record_memory_history(max_entries=100_000)
    run()
    torch.cuda.synchronize()
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    freed = {event["addr"] for event in events if event["action"] == "free_completed"}
    sizes = [int(event["size"]) for event in events if event["action"] == "alloc" and event["addr"] in freed]
    return max(size for size in sizes if size > _LARGE)


if __name__ == "__main__":
    main()
