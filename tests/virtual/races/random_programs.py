"""Random programs of three streams, each an operation a line: the lines that the engine finds in a race, and those that
are found as on a real GPU. `python random_programs.py COUNT FOLDER` prints those of each program, as JSON."""

from __future__ import annotations

import json
import random
import re
import runpy
import sys
from pathlib import Path

HEAD = """import torch
s = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
t = [torch.zeros(64, 32, device="cuda") for _ in range(3)]
h = [torch.zeros(64, 32).pin_memory() for _ in range(2)]
e = [torch.cuda.Event() for _ in range(3)]
torch.cuda.synchronize()
"""
ON_DEVICE = (
    "{part}.add_(1)",
    "{part}.add_(1)",
    "{part}.fill_(1)",
    "{part}.sum()",
    "{part}.sum()",
    "t[{i}].copy_(t[{j}])",
)
COPIES = (
    "h[{k}].copy_(t[{i}], non_blocking=True)",
    "h[{k}].copy_(t[{i}])",
    "t[{i}].copy_(h[{k}], non_blocking=True)",
    "t[{i}].copy_(h[{k}])",
    "t[{i}][0, 0].item()",
)
ON_HOST = ("h[{k}][:8].fill_(2)", "h[{k}][8:].fill_(2)", "h[{k}].sum()", "h[{k}].tolist()")
ORDERS = (
    *("e[{i}].record(s[{n}])", "e[{i}].record(s[{n}])", "s[{n}].wait_event(e[{i}])", "s[{n}].wait_event(e[{i}])"),
    *("s[{n}].wait_stream(s[{i}])", "s[{n}].wait_stream(s[{i}])", "e[{i}].synchronize()", "s[{n}].synchronize()"),
    *("e[{i}].query()", "s[{n}].query()", "torch.cuda.synchronize()"),
)


def program(seed: int) -> str:
    chance = random.Random(seed)
    lines = []
    for _ in range(chance.randint(8, 40)):
        forms = chance.choices((ON_DEVICE, COPIES, ON_HOST, ORDERS), (40, 18, 8, 34))[0]
        i, j, k, n, low = (chance.randrange(most) for most in (3, 3, 2, 3, 32))
        part = chance.choice((f"t[{i}]", f"t[{i}][{low}:{low + 24}]"))
        line = chance.choice(forms).format(i=i, j=j, k=k, n=n, part=part)
        lines.append(f"with torch.cuda.stream(s[{n}]): {line}" if forms in (ON_DEVICE, COPIES) else line)
    return HEAD + "\n".join(lines) + "\ntorch.cuda.synchronize()\n"


def main(count: int, folder: Path) -> None:
    from unstall.virtual.entry import virtual_gpu

    virtual_gpu("h200").start().stop()  # before torch is imported
    import torch  # noqa: F401

    from unstall.blaming.races.watch import RaceWatch

    for seed in range(count):
        path = folder / f"random_{seed}.py"
        path.write_text(program(seed))
        gpu = virtual_gpu("h200").start()
        watch = RaceWatch()
        try:
            runpy.run_path(str(path))
        finally:
            watch.stop()
            gpu.stop()
        pairs = [
            re.findall(rf"{path.name}:(\d+) on", each.saw) for each in gpu.explain().findings if each.rule == "race"
        ]
        engine = {(int(pair[1]), int(pair[0])) for pair in pairs if len(pair) == 2}  # others are of earlier programs
        found = {
            (race.earlier.where.line, race.later.where.line)
            for race in watch.noted.races()
            if race.earlier.where and race.later.where
        }
        print("= " + json.dumps([sorted(engine), sorted(found), watch.failed]))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
