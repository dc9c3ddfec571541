"""`non_blocking=True` lets the host go on only if its memory is pinned. Lines that wait end in `# waits`."""

import json
import tempfile
import time
from pathlib import Path

import torch
from torch.profiler import profile

pageable = torch.randn(4096, 2048)  # 32 MiB
pinned = pageable.pin_memory()
there, result = torch.randn(2, 4096, 2048, device="cuda")
few, few_there = pageable[0, :16], there[0, :16]
stream, copied = torch.cuda.current_stream(), torch.cuda.Event()


def milliseconds(run):  # for how long the host waits, and after what time the work is done
    torch.cuda.synchronize()  # waits
    begin = time.perf_counter()
    with torch.cuda.stream(stream):  # is timed, too: copies often have a stream of their own
        run()
    waits = (time.perf_counter() - begin) * 1e3
    torch.cuda.synchronize()  # waits
    return waits, (time.perf_counter() - begin) * 1e3


def show(what, waits, done=None):
    print(f"{what}, the host waits: {waits:.3f} ms")
    if done is not None:
        print(f"{what}, done after: {done:.3f} ms")


# %% Pageable memory goes through a pinned buffer of the driver, piece by piece, and the host waits for that.
there.copy_(pinned, non_blocking=True), torch.cuda._sleep(1)  # first calls take longer
show("upload, pageable", milliseconds(lambda: there.copy_(pageable))[0])  # waits
show("upload, pageable and non_blocking", milliseconds(lambda: there.copy_(pageable, non_blocking=True))[0])  # waits
show("upload, pinned", milliseconds(lambda: there.copy_(pinned))[0])  # waits
launch, done = milliseconds(lambda: there.copy_(pinned, non_blocking=True))
show("upload, pinned and non_blocking", launch, done)
show("download, pageable and non_blocking", milliseconds(lambda: pageable.copy_(result, non_blocking=True))[0])  # waits
show("download, pinned and non_blocking", milliseconds(lambda: pinned.copy_(result, non_blocking=True))[0])
# %% Pinning copies on the host, and takes pinned memory from the system if none is left from before.
for memory in ("new memory", "memory used again"):
    pinning, _ = milliseconds(pageable.pin_memory)
    show(f"pin_memory(), then upload, {memory}", pinning + launch, pinning + done)  # one after the other
# %% Up to 64 KiB do not wait with non_blocking, even if pageable: they do not even wait for earlier work of the GPU.
behind = milliseconds(lambda: (torch.cuda._sleep(1_000_000), few_there.copy_(few, non_blocking=True)))
show("64 bytes behind a kernel, pageable and non_blocking", *behind)
# %% A pinned source may be written once its copy has ended. If it is written earlier, new values may arrive.
for wait, when in ((torch.cuda.Event, "at once"), (copied.synchronize, "after event.synchronize()")):
    pinned.fill_(1), torch.cuda._sleep(1_000_000)  # earlier work of the GPU, for which the copy has to wait
    there.copy_(pinned, non_blocking=True), copied.record()
    wait()  # waits
    pinned.zero_()
    print(f"source zeroed {when}, old values that arrive: {there.count_nonzero().item()}")  # waits
# %% Each copy moves its bytes once, on the current stream.
with profile() as recorded:
    there[:8].copy_(pageable[:8], non_blocking=True), there[:8].copy_(pinned[:8], non_blocking=True)
recorded.export_chrome_trace(trace := f"{tempfile.mkdtemp()}/trace.json")
events = json.loads(Path(trace).read_text())["traceEvents"]
copies = [event["args"] for event in events if event.get("cat") == "gpu_memcpy"]
print(f"bytes of two copies: {sum(copy['bytes'] for copy in copies):,} bytes")
print(f"streams of two copies: {len({copy['stream'] for copy in copies})}")
