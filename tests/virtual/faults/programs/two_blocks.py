"""Two watched blocks: the first has a fault, the second sees no more than its error."""

import contextlib
import json

import unstall

found = []
with unstall.virtual_gpu("h200") as first:
    import torch

    table = torch.ones(4, 2, device="cuda")
    table.index_select(0, torch.tensor([4], device="cuda"))
found.append(len(first.timeline().faults))
with unstall.virtual_gpu("h200") as second, contextlib.suppress(RuntimeError):
    torch.cuda.synchronize()
found.append(len(second.timeline().faults))
print(json.dumps(found))
