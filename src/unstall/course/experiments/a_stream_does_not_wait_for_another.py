"""`sum()` on a side stream may start before `normal_()` on the main stream has ended: a race.

The result is wrong only sometimes, so a test may not notice. Events tell when each began and ended.
"""

import torch

from unstall import compare_numbers

side = torch.cuda.Stream()
main = torch.cuda.current_stream()


def program(x, wait):
    start, ended, began = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    start.record()
    x.normal_()  # writes
    ended.record()
    if wait:
        side.wait_stream(main)
    with torch.cuda.stream(side):
        began.record()
        total = x.sum()  # reads
    main.wait_stream(side)
    return total, start, ended, began


x = torch.empty(200_000_000, device="cuda")
for wait, how in ((False, "without a wait"), (True, "with wait_stream")):
    for _ in range(2):  # the first time is a warm-up
        _, start, ended, began = program(x, wait)
        torch.cuda.synchronize()
    print(f"{how}, normal_ ended after: {start.elapsed_time(ended):.4f} ms")
    print(f"{how}, sum began after: {start.elapsed_time(began):.4f} ms")

# %% unstall finds the race by the order that the program asks for, even if the result is right.
small = torch.empty(1000, device="cuda")
writes, reads = program.__code__.co_firstlineno + 3, program.__code__.co_firstlineno + 9
for wait, how in ((False, "without a wait"), (True, "with wait_stream")):
    found = compare_numbers(lambda x, wait=wait: program(x, wait)[0], small, across=["repeat"])
    races = [row.race for row in found if row.race]
    print(f"{how}, races: {len(races)}")
    for race in races:
        for use in (race.earlier, race.later):
            stream = str(use.stream).replace(f"stream {side.cuda_stream:#x}", "the side stream")
            print(f"  {use.operator} on {stream}, line {use.where.line}")
        print(f"lines from normal_ to the first line that unstall names: {race.earlier.where.line - writes}")
        print(f"lines from sum to the second line that unstall names: {race.later.where.line - reads}")
