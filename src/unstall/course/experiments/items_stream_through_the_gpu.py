"""Items are copied in, computed and copied out. A: a stream for each of four items. B: one for each kind of work."""

import timeit

import torch

from unstall import compare_numbers, stream_map

SLOTS, streams = 4, [torch.cuda.Stream() for _ in range(4)]
items = [torch.ones(2048, 2048).pin_memory() for _ in range(4)] * 10
small = [torch.full((8, 8), float(n)).pin_memory() for n in range(6)]  # results, always computed


def model(x):
    return x.sin().cos().sin().cos().sin().cos().sin().cos()


def strategy_a(items, results, slots=SLOTS):
    for index, (item, result) in enumerate(zip(items, results, strict=True)):
        with torch.cuda.stream(streams[index % slots]):  # a stream works in order, and uses its memory again
            result.copy_(model(item.to("cuda", non_blocking=True)), non_blocking=True)


def strategy_b(items, results):
    copied, computed, returned = ([torch.cuda.Event() for _ in range(SLOTS)] for _ in range(3))
    inputs, outputs = torch.empty(2, SLOTS, *items[0].shape, device="cuda")
    for index, (item, result) in enumerate(zip(items, results, strict=True)):
        slot = index % SLOTS
        with torch.cuda.stream(streams[0]):
            streams[0].wait_event(returned[slot])  # the last item of this slot is done
            inputs[slot].copy_(item, non_blocking=True)
            copied[slot].record()
        with torch.cuda.stream(streams[1]):
            streams[1].wait_event(copied[slot])
            outputs[slot].copy_(model(inputs[slot]))
            computed[slot].record()
        with torch.cuda.stream(streams[2]):
            streams[2].wait_event(computed[slot])
            result.copy_(outputs[slot], non_blocking=True)
            returned[slot].record()


def measure(name, strategy):
    def way(items):
        results = [torch.empty_like(item, pin_memory=True) for item in items if name != "stream_map"]
        strategy(items, results)
        torch.cuda.synchronize()
        return results

    torch.cuda.empty_cache()
    seconds = min(timeit.repeat(lambda: way(items), number=1, repeat=4))  # the first time takes memory
    print(f"{name}: {seconds * 1e3:.2f} ms\n{name}, memory: {torch.cuda.memory_reserved() / 2**20:.0f} MiB")
    right.extend(map(torch.allclose, way(small), map(model, small)))
    races.extend(row.race for row in compare_numbers(way, small, across=["repeat"]) if row.race)


right, races = [], []
measure("one stream", lambda items, results: strategy_a(items, results, slots=1))
measure("strategy A", strategy_a)
measure("strategy B", strategy_b)
measure("stream_map", lambda items, results: results.extend(stream_map(model, items)))
runs = [[timeit.default_timer() for _ in stream_map(model, items)] for _ in range(4)]
print(f"stream_map, the other 39 results: {min(times[-1] - times[0] for times in runs) * 1e3:.2f} ms")
print(f"right results of 4 x 6 small items: {sum(right)}\nraces: {len(races)}")
