"""Options of a process group over NCCL, and a group of one rank; the last line is JSON."""

import json

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
options.config.max_ctas = 4
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, pg_options=options)
tensor = torch.full((2,), 3.0, device="cuda")
dist.all_reduce(tensor)
told = {
    "has it": [hasattr(module, "ProcessGroupNCCL") for module in (dist, distributed_c10d)],
    "high priority": options.is_high_priority_stream,
    "timeout": options._timeout.total_seconds(),
    "ctas": options.config.max_ctas,
    "group of one": tensor[0].item(),
}
dist.destroy_process_group()
print(json.dumps(told))
