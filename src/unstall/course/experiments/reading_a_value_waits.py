"""Many innocent lines wait for the GPU: all lines that need a value on the host. They end in `# waits`."""

import inspect
import io
from linecache import getline

import torch

from unstall import SyncError, no_sync

x = torch.randn(512, 512, device="cuda") / 23
pageable, pinned = torch.randn(1024, 1024), torch.randn(1024, 1024).pin_memory()
nowhere = io.StringIO()


def work():
    """Half a millisecond of work for the GPU. Its result is one number, which stays on the GPU."""
    torch.cuda._sleep(1_000_000)  # clock cycles
    return (x @ x)[0, :5].norm()


def lines_that_wait():
    work().item()  # waits
    float(work())  # waits
    print(work(), file=nowhere)  # waits
    work().cpu().numpy()  # waits
    work().tolist()  # waits
    (work() > 0).nonzero()  # waits
    t = work()
    if (t > 0).all():  # waits
        t = -t
    work() + pageable.to("cuda")  # waits
    work() + pageable.to("cuda", non_blocking=True)  # waits
    work() + pinned.to("cuda")  # waits
    work() + torch.tensor([1.0, 2.0], device="cuda")  # waits


def lines_that_do_not():
    t = work()
    t = torch.where(t > 0, -t, t)
    t + pinned.to("cuda", non_blocking=True)
    t.to("cpu", non_blocking=True)  # only who reads it has to wait
    print(t.shape, t.dtype, t.device, file=nowhere)


# %% A guard counts the waits, and names their lines.
for lines in (lines_that_wait, lines_that_do_not):
    lines()  # the first time takes memory, which waits too
    with no_sync("count") as guard:
        lines()
    waits = {wait.line for wait in guard.waits}
    print(f"waits in {lines.__name__}: {len(waits)}")
    for line in sorted(waits):
        print(f"  line {line}   {getline(__file__, line).strip()}")
print(inspect.getsource(lines_that_do_not))

# %% It can also forbid them: then the first wait is an error.
try:
    with no_sync():
        lines_that_wait()
except SyncError as error:
    print(error)
