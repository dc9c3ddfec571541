"""Items are copied in, computed and copied back, side by side and in bounded memory, by two strategies. A: an item has
one stream for all its work. B: one stream copies in, one computes, one copies out."""

import time

import torch

from unstall import stream_map

ITEMS, SLOTS, SHAPE = 40, 4, (2048, 2048)
items = [torch.ones(SHAPE).pin_memory() for _ in range(4)] * (ITEMS // 4)
results = [torch.empty(SHAPE, pin_memory=True) for _ in items]
streams = [torch.cuda.Stream() for _ in range(SLOTS)]


def model(x):
    return x.sin().cos().sin().cos().sin().cos().sin().cos()


def strategy_a(slots=SLOTS):
    for index, (item, result) in enumerate(zip(items, results, strict=True)):
        with torch.cuda.stream(streams[index % slots]):  # a stream works in order, and uses its memory again
            result.copy_(model(item.to("cuda", non_blocking=True)), non_blocking=True)


def strategy_b():
    copies_in, computes, copies_out = streams[:3]
    copied, computed, returned = ([torch.cuda.Event() for _ in range(SLOTS)] for _ in range(3))
    inputs, outputs = torch.empty(2, SLOTS, *SHAPE, device="cuda")
    for index, (item, result) in enumerate(zip(items, results, strict=True)):
        slot = index % SLOTS
        with torch.cuda.stream(copies_in):
            copies_in.wait_event(returned[slot])  # the last item of this slot is done
            inputs[slot].copy_(item, non_blocking=True)
            copied[slot].record()
        with torch.cuda.stream(computes):
            computes.wait_event(copied[slot])
            outputs[slot].copy_(model(inputs[slot]))
            computed[slot].record()
        with torch.cuda.stream(copies_out):
            copies_out.wait_event(computed[slot])
            result.copy_(outputs[slot], non_blocking=True)
            returned[slot].record()


def measure(name, way):
    torch.cuda.empty_cache()
    for _ in range(2):  # the first time takes memory
        torch.cuda.synchronize()
        begin = time.perf_counter()
        way()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
    print(f"{name}: {seconds * 1e3:.2f} ms\n{name}, memory: {torch.cuda.memory_reserved() / 2**20:.0f} MiB")


measure("one stream", lambda: strategy_a(slots=1))
measure("strategy A", strategy_a)
measure("strategy B", strategy_b)
measure("stream_map", lambda: list(stream_map(model, items)))
