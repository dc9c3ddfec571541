"""Device times that `bench` gives on the virtual GPU, beside those of the virtual timeline. JSON in the last line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import unstall
from unstall.virtual.entry import virtual_gpu

gpu = virtual_gpu("h200").start()
import torch  # noqa: E402

x = torch.randn(128, 128, device="cuda")
v = torch.randn(1 << 16, device="cuda")
side = torch.cuda.Stream()


def two_streams() -> Any:
    side.wait_stream(torch.cuda.current_stream())
    first = x @ x
    with torch.cuda.stream(side):
        second = v * 2
    torch.cuda.current_stream().wait_stream(side)
    return first, second


cases: dict[str, Any] = {
    "add": lambda: x + 1,
    "mm": lambda: x @ x,
    "chain": lambda: [torch.nn.functional.gelu(x) for _ in range(5)],
    "softmax": lambda: torch.softmax(x, -1),
    "sum": lambda: v.sum(),
    "two streams": two_streams,
    "copy": lambda: v.cpu(),
}


def by_the_timeline(fn: Callable[[], Any]) -> int:
    """The union of the ops of one call, in a watch of its own."""
    torch.cuda.synchronize()
    watch = virtual_gpu("h200").start()
    fn()
    torch.cuda.synchronize()
    watch.stop()
    device = watch.timeline().device
    covered, reach = 0, -1
    for start, end in sorted(zip(device.start.tolist(), device.end.tolist(), strict=True)):
        covered += max(0, end - max(start, reach))
        reach = max(reach, end)
    return covered


said: dict[str, Any] = {}
for name, fn in cases.items():
    fn()
    measured = unstall.bench(fn, max_seconds=0.5)
    assert measured.device is not None
    said[name] = {
        "bench": sorted(set(measured.device.samples.tolist())),
        "timeline": by_the_timeline(fn),
        "method": measured.method,
        "wall": measured.wall.median,
        "host": measured.host.median,
    }
events = unstall.bench(torch.softmax, x, -1, method="events", cache="rotate", max_seconds=0.3)
assert events.device is not None
said["by events"] = {"method": events.method, "device": events.device.median, "notes": list(events.notes)}
plain = unstall.bench(sum, [1, 2, 3], max_seconds=0.2)
said["plain"] = {"method": plain.method, "device": plain.device is None}
print(json.dumps(said))
