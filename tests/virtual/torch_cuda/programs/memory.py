"""The caching allocator's figures, as a program asks for them."""

import torch
from virtual.torch_cuda.programs.telling import fact

MIB = 1 << 20


def sequence() -> object:
    held = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    rows = [[torch.cuda.memory_allocated(), torch.cuda.memory_reserved()]]
    del held
    rows.append([torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), torch.cuda.max_memory_allocated()])
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    rows.append([torch.cuda.memory_reserved(), torch.cuda.max_memory_allocated()])
    return rows


def other_device() -> object:
    held = torch.empty(1, device="cuda:1")
    return [torch.cuda.memory_allocated(0), torch.cuda.memory_allocated(1), held.is_cuda]


def raw() -> object:
    with torch.cuda.stream(torch.cuda.Stream()):
        pointer = torch.cuda.caching_allocator_alloc(1000)
        before = torch.cuda.memory_allocated()
    torch.cuda.caching_allocator_delete(pointer)
    return [before, torch.cuda.memory_allocated()]


def free_bytes_fall() -> object:
    torch.cuda.empty_cache()
    before, total = torch.cuda.mem_get_info()
    held = torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")
    return [before - torch.cuda.mem_get_info()[0], total, held.numel()]


def limited() -> object:
    torch.cuda.set_per_process_memory_fraction(0.001)
    try:
        return torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        return [torch.cuda.get_per_process_memory_fraction(), str(error)]
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


fact("before cuda", lambda: len(torch.cuda.memory_stats()))
fact("sequence", sequence)
fact("other device", other_device)
fact("nested", lambda: sorted(torch.cuda.memory_stats_as_nested_dict()["segment"]["all"]))
fact("raw", raw)
fact("raw of nobody", lambda: torch.cuda.caching_allocator_delete(0x3039))
fact("free bytes fall", free_bytes_fall)
fact("limited", limited)
fact("too much", lambda: torch.empty(200 << 30, dtype=torch.uint8, device="cuda"))
fact("summary", lambda: torch.cuda.memory_summary().splitlines()[1].strip())
held = torch.ones(1, device="cuda")
fact("segments", lambda: [sorted(segment) for segment in torch.cuda.memory_snapshot()][:1])
fact("settings", lambda: torch.cuda.memory._snapshot()["allocator_settings"]["expandable_segments"])
fact("backend", torch.cuda.get_allocator_backend)
fact("accelerator", lambda: torch.accelerator.memory_allocated() == torch.cuda.memory_allocated())
fact("pool", torch.cuda.MemPool)
fact("own allocator", lambda: torch.cuda.memory.CUDAPluggableAllocator("libc.so.6", "malloc", "free"))
