"""Prints random requests for memory and the statistics after each, as in tests/data/h200/allocator.json.gz."""

import json
import math
import random

import torch

KEYS = [
    "allocated_bytes.all.current",
    "reserved_bytes.all.current",
    "active_bytes.all.current",
    "inactive_split_bytes.all.current",
    "allocation.all.current",
    "segment.all.current",
    "allocated_bytes.all.peak",
    "reserved_bytes.all.peak",
    "num_alloc_retries",
    "requested_bytes.all.current",
]


def statistics() -> list:
    stats = torch.cuda.memory_stats()
    return [stats[key] for key in KEYS]


def reset() -> None:
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()


def rows_of_a_matrix() -> list:
    rows = []
    for columns in (2048, 2048, 1024, 3072):
        torch.empty(4096, columns, dtype=torch.float32, device="cuda")
        rows.append((columns, statistics()))
    torch.cuda.empty_cache()
    rows.append(("empty_cache", statistics()))
    return rows


def requests(seed: int, least: int, most: int, streams: int) -> list:
    draw, live, rows = random.Random(seed), {}, []
    on = [torch.cuda.default_stream(), torch.cuda.Stream()][:streams]
    for name in range(400):
        if live and draw.random() < 0.45:
            freed = draw.choice(sorted(live))
            del live[freed]
            rows.append(["free", freed, 0, 0, statistics()])
        else:
            size = int(2 ** draw.uniform(math.log2(least), math.log2(most)))
            stream = draw.randrange(streams)
            with torch.cuda.stream(on[stream]):
                live[name] = torch.empty(size, dtype=torch.uint8, device="cuda")
            rows.append(["alloc", name, size, stream, statistics()])
    live.clear()
    rows.append(["free_all", 0, 0, 0, statistics()])
    torch.cuda.empty_cache()
    rows.append(["empty_cache", 0, 0, 0, statistics()])
    return rows


reset()
told = {"keys": KEYS, "seed": rows_of_a_matrix()}
for kind, seed, least, most in (("small", 1, 1, 1 << 20), ("mixed", 2, 1, 64 << 20), ("large", 3, 1 << 20, 256 << 20)):
    for streams in (1, 2):
        reset()
        told[f"{kind}_s{streams}"] = requests(seed, least, most, streams)
print(json.dumps(told))
