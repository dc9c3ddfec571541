"""How much of a part of the device requests of one size get before they are refused, and how each is counted."""

import json
import sys

import torch

MIB = 1 << 20
size = float(sys.argv[1])
device = torch.cuda.get_device_properties(0)
torch.cuda.set_per_process_memory_fraction(1_000 * MIB / device.total_memory)
held = []
refused = False
try:
    while len(held) < 5_000:
        held.append(torch.empty(int(size * MIB), dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError:
    refused = True
stats = torch.cuda.memory_stats()
claimed = sum(each.numel() for each in held)
counted = stats["allocation.all.allocated"] == len(held)
del held[-1]
before = torch.cuda.memory_stats()["allocation.all.allocated"]
again = torch.empty(int(size * MIB), dtype=torch.uint8, device="cuda")
counted_again = torch.cuda.memory_stats()["allocation.all.allocated"] - before
print(
    json.dumps(
        {
            "refused": refused,
            "claimed_mib": claimed / MIB,
            "allocated_at_least": stats["requested_bytes.all.current"] == claimed,
            "reserved_mib": stats["reserved_bytes.all.peak"] / MIB,
            "counted": counted,
            "counted_again": counted_again,
            "ooms": stats["num_ooms"],
        }
    )
)
