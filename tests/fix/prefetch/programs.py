"""Programs around `prefetch` that run on any GPU."""

from __future__ import annotations

# Loaders that write to their own buffers as soon as the next batch is asked for, consumers that keep batches for long
# and write to them, iterations that are broken off, loaders that raise. Every batch is looked at when it comes and when
# it is let go.
LIFETIMES = """
import random, sys
import torch
from unstall import prefetch

BATCHES, SEED = {batches}, {seed}
dice = random.Random(SEED)


def buffers(kind, count, shape):
    return [torch.empty(shape, pin_memory=kind == "pinned") for _ in range(count)]


def loader(first, count, fails):
    kind, size = dice.choice(["pageable", "pinned"]), dice.choice([64, 1000, 70_000])
    ring = buffers(kind, dice.choice([1, 2, 3, 50]), size)
    small = buffers("pageable", 1, (2, 3))[0]
    for number in range(first, first + count):
        mine = ring[number % len(ring)]
        mine.fill_(float(number))
        small.fill_(float(number))
        yield {{"x": mine, "rest": [small[:, 1], (torch.tensor(number), "text")]}}
        if len(ring) < 50:
            mine.fill_(-1.0)
        small.fill_(-2.0)
    if fails:
        raise LookupError(first)


def right(batch, number):
    x, (y, (z, text)) = batch["x"], batch["rest"]
    total = x.double().sum() + y.double().sum() * 1e-3 + z.double() * 1e6
    return abs(float(total) - (number * len(x) + number * 2e-3 + number * 1e6)) < 1e-6 * (number + 1) * 1e6


seen = 0
while seen < BATCHES:
    count, fails, depth = dice.randrange(1, 200), dice.random() < 0.3, dice.choice(["auto", 0, 1, 2, 5])
    stop = dice.choice([count, dice.randrange(1, count + 1)])
    kept, number, ended = [], seen, "end"
    side = torch.cuda.Stream() if dice.random() < 0.3 else torch.cuda.current_stream()
    batches = iter(prefetch(loader(seen, count, fails), depth=depth))
    with torch.cuda.stream(side):
        try:
            for batch in batches:
                if dice.random() < 0.1:
                    assert right(batch, number), (SEED, number, "when it came")
                kept.append((number, batch))
                number += 1
                while len(kept) > 6 or (kept and dice.random() < 0.5):
                    before, old = kept.pop(0)
                    assert right(old, before), (SEED, before, "when it went")
                    old["x"].fill_(-3.0)
                if number - seen == stop:
                    ended = "break"
                    break
        except LookupError as error:
            assert error.args == (seen,) and error.__traceback__.tb_next is not None
            ended = "error"
        for before, old in kept:
            assert right(old, before), (SEED, before, "at the end")
    assert ended == ("break" if number - seen == stop else "error" if fails else "end"), (SEED, ended)
    if dice.random() < 0.5:
        batches.close()
    side.synchronize()
    del batches, kept
    seen = number
print("ALL", seen)
"""

# Helpers that time themselves, and steps, do not make the virtual GPU simulate; what they take is right all the same.
SIMULATIONS = """
import sys
import torch
import unstall
from unstall.virtual.machine import current
from unstall.virtual.simulation.log_reader import LogReader

simulations = 0
simulate = LogReader._simulate


def counting(self, *arguments):
    global simulations
    simulations += 1
    return simulate(self, *arguments)


LogReader._simulate = counting
weights = torch.randn(256, 256, device="cuda")


def simulated(batches, look):
    global simulations
    simulations = 0
    for batch in batches:
        (batch @ weights).relu()
        look()
    return simulations


source = [torch.randn(64, 256) for _ in range(100)]
steps = simulated([batch.cuda() for batch in source], unstall.step)
loop = unstall.prefetch(source)
in_place = simulated(loop, lambda: None)
assert loop.stats().depth == 0
data = torch.utils.data.TensorDataset(torch.randn(6400, 256))
ahead = unstall.prefetch(torch.utils.data.DataLoader(data, 64), depth=2)
beside = simulated((x for x, in ahead), lambda: None)
stats = ahead.stats()
assert stats.batches == 100 and stats.fetch_ns > 0 and stats.stage_ns > 0 and stats.waited_ns > 0, stats
assert len(current()._clock.log.whole()) == 0  # the program reads no clock
print("SIMULATED", steps, in_place, beside)
"""

ORDER = """
import torch
from torch.utils.data import DataLoader, Dataset
from unstall import prefetch

class Numbers(Dataset):
    def __init__(self, draws): self.draws = draws
    def __len__(self): return 300
    def __getitem__(self, at):
        return torch.tensor(float(at)) + (torch.rand(()) if self.draws else 0.0)

def run(wrap, draws, depth):
    torch.manual_seed(5)
    loader = DataLoader(Numbers(draws), batch_size=4, shuffle=True)
    said = []
    wrapped = prefetch(loader, depth=depth) if wrap else loader
    for epoch in range(2):
        for batch in wrapped:
            said.append((batch.tolist(), float(torch.rand(()))))
    return said, float(torch.rand(())), wrapped

for draws in (False, True):
    for depth in ("auto", 3):
        plain, prefetched = run(False, draws, depth), run(True, draws, depth)
        assert plain[:2] == prefetched[:2], (draws, depth)
        stats = prefetched[2].stats()
        is_slower = depth == "auto" and "slower" in stats.note  # on a busy machine it can be
        assert (stats.depth > 0 or is_slower) == (not draws), stats
        assert len(prefetched[2]) == 75 and prefetched[2].batch_size == 4
print("SAME")
"""

STATE = """
import torch
from unstall import prefetch

class Stateful:
    at = 0
    def __iter__(self):
        while self.at < 30:
            self.at += 1
            yield torch.tensor([self.at])
    def state_dict(self): return {"at": self.at}
    def load_state_dict(self, state): self.at = state["at"]

loader = prefetch(Stateful(), depth=4)
for number, batch in enumerate(loader, 1):
    assert loader.state_dict() == {"at": number}, (number, loader.state_dict())
    if number == 12:
        break
state = loader.state_dict()
again = prefetch(Stateful(), depth=4)
again.load_state_dict(state)
assert [int(batch) for batch in again] == list(range(13, 31))
print("RESUMED")
"""

LEFT_OPEN = """
import time, torch
from unstall import prefetch

def slow():
    number = 0
    while True:
        number += 1
        if number > 5:
            time.sleep(0.05)
        yield torch.full((10,), float(number))

left = iter(prefetch(slow(), depth=3))
for _ in range(4):
    next(left)
print("LEAVING")
"""

# Nothing of an iteration waits for the garbage collector: in a forked worker that would free events of the parent.
FREED = """
import gc, weakref, torch
from unstall import prefetch

def loader(fails):
    for number in range(40):
        yield torch.full((10,), float(number))
    if fails:
        raise LookupError

gc.collect()
gc.disable()
for fails in (False, True):
    for stop in (2, 20, 100):
        for depth in ("auto", 0, 3):
            batches = prefetch(loader(fails), depth=depth)
            iteration = iter(batches)
            try:
                for number, batch in enumerate(iteration):
                    if number == stop:
                        break
            except LookupError:
                pass
            left = [weakref.ref(iteration), weakref.ref(batches), weakref.ref(batches._passes.sender)]
            del batch, iteration, batches
            assert [each() for each in left] == [None] * 3, (fails, stop, depth, left)
print("FREED")
"""

# A loader whose workers fetch ahead and whose thread pins: whether the device waits for it decides how it is copied.
WORKERS = """
import time, torch
from torch.utils.data import DataLoader
from unstall import prefetch

class Loader(DataLoader):
    def __init__(self, seconds):
        super().__init__(range(60), num_workers=2, pin_memory=True)
        self.seconds = seconds
    def __iter__(self):
        for number in range(60):
            time.sleep(self.seconds if number < 40 else 0.01)
            yield torch.full((100_000,), float(number)).pin_memory()

for seconds, note in ((0.01, "device still waits"), (0, "copies overlap")):
    loader = prefetch(Loader(seconds))
    for number, batch in enumerate(loader):
        torch.cuda._sleep(2_000_000)  # a millisecond
        assert int(batch.sum()) == number * 100_000 if number % 20 == 0 else True
        if number == 35:
            assert loader.stats().depth == 0 and note in loader.stats().note, loader.stats()
    assert "device still waits" in loader.stats().note, loader.stats()
print("BESIDE")
"""


# Of small batches that are at hand one is looked at, and as long as all are like it nothing is done beside the loop.
SMALL_FIRST = """
import time
import torch
from unstall import prefetch

weights = torch.randn(512, 512, device="cuda")


def told(batches):
    loader = prefetch(batches)
    for batch in loader:
        weights @ weights
    return loader.stats()


small, large = torch.zeros(64), [torch.zeros(1 << 20)] * 40
alike = told([small] * 40)
assert "a plain loop: batches are small" in alike.note, alike
assert alike.bytes <= 2 * 64 * 4, alike
mixed = told([small, small, *large])
assert "ahead" in mixed.note and mixed.batches == 42, mixed
assert mixed.bytes > 30 * (4 << 20), mixed


def late(numbers):
    for number in range(40):
        if number in numbers:
            time.sleep(0.001)
        yield small


once = told(late({5, 20}))
assert "a plain loop: batches are small" in once.note, once
often = told(late(range(3, 40, 2)))
assert "a plain loop: batches are small" not in often.note, often
print("LOOKED AGAIN")
"""


# A loader as slow as the loop's body: once a batch is ahead, nothing is waited for.
SLOW_LOADER = """
import time
import torch
from unstall import prefetch

PAUSE_NS, BATCHES = 20_000_000, 30


def loader():
    for number in range(BATCHES):
        time.sleep(PAUSE_NS / 1e9)
        yield torch.full((1000,), float(number))


torch.zeros(1000).pin_memory().cuda()  # the first use of CUDA is no wait for a batch
torch.cuda.synchronize()
batches = prefetch(loader())
start = time.perf_counter_ns()
for batch in batches:
    time.sleep(PAUSE_NS / 1e9)
took, told = time.perf_counter_ns() - start, batches.stats()
print(took, told)
assert told.fetch_ns >= BATCHES * PAUSE_NS
assert abs(told.waited_ns - (took - BATCHES * PAUSE_NS)) < PAUSE_NS / 2, told
assert told.waited_ns < 6 * PAUSE_NS  # three that are looked at, and the first that is fetched ahead
assert told.stalled_ns < BATCHES * 100_000
assert told.overlap > 0.75
print("TOLD")
"""


# Fetching ahead seems slower, and is measured again while another iteration of the loader begins.
TWO_AT_ONCE = """
import threading, time, torch
from unstall import prefetch

fetched = []

class Loader:
    pace = 0.0005
    def __iter__(self):
        for _ in range(400):
            here = threading.current_thread() is threading.main_thread()
            fetched.append(here)
            time.sleep(self.pace if here else 0.002)
            yield torch.ones(1 << 16)

loader = Loader()
batches = prefetch(loader)
first = iter(batches)
while "measuring again" not in batches.stats().note:
    next(first)
loader.pace = 0.01
second = iter(batches)
del fetched[:]
for _ in range(60):
    next(first)
    next(second)
assert len(fetched) > 100 and all(fetched), fetched
print("ONE THREAD")
"""


# A loader that raises and goes on: what comes, and the state after it, are those of a plain loop.
RAISES = """
import torch
from unstall import prefetch
small = [torch.full((16,), float(i)) for i in range(60)]
large = [torch.full((1 << 18,), float(i)) for i in range(60)]

class Raises:
    # Goes on after an error. Its state is the number of the item that comes next.
    def __init__(self, batches, at, error):
        self.batches, self.at, self.error, self.i = batches, at, error, 0
    def __iter__(self):
        self.i = 0
        return self
    def __next__(self):
        i = self.i
        self.i += 1
        if i >= 40:
            raise StopIteration
        if i == self.at:
            raise self.error(str(i))
        return self.batches[i]
    def state_dict(self): return {"i": self.i}
    def load_state_dict(self, state): self.i = state["i"]

def walk(loader, it):
    got = []
    while True:
        try:
            told = float((batch := next(it))[0])
        except StopIteration:
            break
        except BaseException as error:
            told = repr(error)
        got.append((told, loader.state_dict()["i"]))
        torch.cuda._sleep(200_000)
    return [*got, loader.state_dict()["i"]]

for batches in (small, large):
    for error in (ValueError, KeyboardInterrupt, torch.OutOfMemoryError):
        for at in (0, 1, 2, 5, 30):
            for depth in ("auto", 0, 2):
                plain = Raises(batches, at, error)
                wanted = walk(plain, iter(plain))
                loader = prefetch(Raises(batches, at, error), depth=depth)
                assert walk(loader, iter(loader)) == wanted, (error, at, depth, loader.stats())
print("STATES")
"""


# Fetching draws random numbers early, and then long after, when the program draws too.
DRAWS_LATE = """
import time, torch
from unstall import prefetch

weights, small = torch.randn(64, 64, device="cuda"), [torch.full((16,), float(number)) for number in range(200)]

def loader():
    for number, batch in enumerate(small):
        time.sleep(0.002 if number >= 10 else 0)
        yield batch + torch.rand(16) if number == 3 or number >= 60 else batch

def run(batches):
    torch.manual_seed(0)
    for number, batch in enumerate(batches):
        for _ in range(20):
            weights @ weights
        yield batch.cpu(), torch.rand(16) if number > 100 else torch.zeros(16)

class Loader:
    def __iter__(self):
        return loader()

ahead = prefetch(Loader())
pairs = zip(list(run(batch.cuda() for batch in loader())), list(run(ahead)), strict=True)
differ = [place for place, (wanted, given) in enumerate(pairs) if not all(map(torch.equal, wanted, given))]
assert not differ and "used torch's global" in ahead.stats().note, (differ, ahead.stats())
print("AS DRAWN")
"""


# Both threads pause at random, in real time alone. Prints the virtual times at which the program gets its batches.
PAUSES = """
import random, threading, time, torch
from unstall import prefetch

pauses = random.Random({seed})

def pause():
    threading.Event().wait(pauses.random() * 0.004)

class Loader:
    def __iter__(self):
        for batch in batches:
            pause()
            yield batch

batches = [torch.randn(64, 4096) for _ in range(30)]
weights = torch.randn(256, 4096, device="cuda")
times = [time.perf_counter_ns()]
for batch in prefetch(Loader(), depth=3):
    for _ in range(3):
        product = batch @ weights.t()
    pause()
    times.append(time.perf_counter_ns())
torch.cuda.synchronize()
times.append(time.perf_counter_ns())
print("TIMES", *(at - times[0] for at in times))
"""


# Batches of 64 MiB beside a kernel that takes longer than their copies: by a stream of one's own, and by prefetch. With
# the memory given, prefetch has room for all, or must wait for the kernel.
BESIDE = """
import time, torch
from unstall import prefetch

torch.cuda.set_per_process_memory_fraction({gib} * 2**30 / torch.cuda.get_device_properties(0).total_memory)
batch = torch.empty(16 << 20).pin_memory()

def timed(run):
    torch.cuda.synchronize()
    begin = time.perf_counter_ns()
    run()
    torch.cuda.synchronize()
    return time.perf_counter_ns() - begin

def by_hand():
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(60):
            batch.to("cuda", non_blocking=True)
    torch.cuda._sleep(200_000_000)

def by_prefetch():
    batches = prefetch((batch for _ in range(60)), depth="auto")
    torch.cuda._sleep(200_000_000)
    for _ in batches:
        pass

print("TIMES", timed(by_hand), timed(by_prefetch), torch.cuda.memory_stats()["num_alloc_retries"])
"""

# The program needs most of the device's memory, but only after the first batches.
GROWS = """
import torch
from unstall import prefetch

torch.cuda.set_per_process_memory_fraction(3 * 2**30 / torch.cuda.get_device_properties(0).total_memory)
held = []
for number, batch in enumerate(prefetch((torch.empty(16 << 20).pin_memory() for _ in range(40)), depth="auto")):
    torch.cuda._sleep(20_000_000)
    if number % 4 == 3:
        held.append(torch.empty(64 << 20, dtype=torch.float32, device="cuda"))
        held = held[-9:]
print("FITS")
"""

# Four threads take batches from one iterator.
SHARED = """
import threading, time, torch
from unstall import prefetch
from unstall.errors import UsageError

batches = iter(prefetch((torch.full((1000,), float(number)) for number in range(400)), depth=2))
taken, errors, ready = [], [], threading.Barrier(4)

def take():
    ready.wait()
    try:
        for batch in batches:
            taken.append(float(batch[0]))
    except UsageError as error:
        errors.append(str(error))

threads = [threading.Thread(target=take) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert sorted(taken) == [float(number) for number in range(400)], len(taken)
assert all(error.startswith("two threads ask the same iterator of a prefetch") for error in errors), errors
print("CLEAR", len(errors))
"""
