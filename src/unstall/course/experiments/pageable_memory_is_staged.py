"""`non_blocking=True` lets the host go on only if its memory is pinned.

A copy from or to pageable memory goes through a pinned buffer of the driver, piece by piece, and the host waits. Lines
that wait end in `# waits`.
"""

import json
import tempfile
import time
from pathlib import Path

import torch
from torch.profiler import profile

pageable = torch.randn(4096, 2048)
pinned, back = pageable.pin_memory(), pageable.pin_memory()
there, result = torch.randn(2, 4096, 2048, device="cuda")
side = torch.cuda.Stream()


def measure(label, copy):
    torch.cuda.synchronize()  # waits
    begin = time.perf_counter()
    copy()
    returned = time.perf_counter() - begin
    torch.cuda.synchronize()  # waits
    print(f"{label} returns after: {returned * 1e3:.3f} ms")
    print(f"{label} is done after: {(time.perf_counter() - begin) * 1e3:.3f} ms")


# %% Pageable or pinned, with and without non_blocking, in both directions.
measure("warm-up", lambda: there.copy_(pinned, non_blocking=True))
measure("upload, pageable", lambda: there.copy_(pageable))  # waits
measure("upload, pageable and non_blocking", lambda: there.copy_(pageable, non_blocking=True))  # waits
measure("upload, pinned", lambda: there.copy_(pinned))  # waits
measure("upload, pinned and non_blocking", lambda: there.copy_(pinned, non_blocking=True))
measure("download, pageable and non_blocking", lambda: pageable.copy_(result, non_blocking=True))  # waits
measure("download, pinned and non_blocking", lambda: pinned.copy_(result, non_blocking=True))


# %% Each direction has a copy engine of its own. Copies of two streams use both at once.
def both():
    there.copy_(pinned, non_blocking=True)
    with torch.cuda.stream(side):
        back.copy_(result, non_blocking=True)


measure("both directions", both)

# %% Each copy moves its bytes once, on the current stream. (Uploads of up to 64 KiB do not wait, even if pageable.)
with profile() as recorded:
    there[:8].copy_(pageable[:8], non_blocking=True)
    there[:8].copy_(pinned[:8], non_blocking=True)
trace = Path(tempfile.mkdtemp()) / "trace.json"
recorded.export_chrome_trace(str(trace))
copies = [event["args"] for event in json.loads(trace.read_text())["traceEvents"] if event.get("cat") == "gpu_memcpy"]
print(f"bytes of two copies: {sum(copy['bytes'] for copy in copies):,} bytes")
print(f"streams of two copies: {len({copy['stream'] for copy in copies})}")
