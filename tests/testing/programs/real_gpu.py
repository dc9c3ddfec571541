"""Counts a program by what a real GPU has, here on a virtual one: torch's own figures, and the race watch."""

import json

from unstall.testing.sources import OfRealGpu, Wanted, forget_caches, source
from unstall.virtual.entry import virtual_gpu

gpu = virtual_gpu("h200").start()

import torch  # noqa: E402 - the virtual GPU comes first


def work():
    other = torch.cuda.Stream()
    x = torch.zeros(30 << 18, device="cuda")
    x += 1
    with torch.cuda.stream(other):
        y = x * 2  # the race
    torch.cuda.synchronize()
    del y


work()
found = {}
for name, begin in (("virtual", source), ("real", OfRealGpu)):
    forget_caches()
    counting = begin(Wanted(memory=True, races=True))
    work()
    found[name] = counting.end().reserved_bytes
races = [(race.later.where.line, race.title) for race in counting.races()]
print(json.dumps({**found, "races": races}))
