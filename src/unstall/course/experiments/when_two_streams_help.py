"""Two kernels on one stream, and on two. Two streams help only if one kernel leaves a part of the GPU idle.

A product of large matrices fills a GPU. A softmax of two long rows uses two blocks of threads, so
two multiprocessors. Tiny kernels end before the next is launched, whichever stream that is on.
"""

import time

import torch

one, other = torch.cuda.Stream(), torch.cuda.Stream()


def seconds(function, first, second):
    """Runs the function once on each of two streams."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    with torch.cuda.stream(first):
        function()
    with torch.cuda.stream(second):
        function()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


a = torch.randn(1000, 1000, device="cuda")
large = torch.randn(4000, 4000, device="cuda")
rows = torch.randn(2, 2_000_000, device="cuda")
tiny = torch.randn(5, device="cuda")
programs = {
    "products": lambda: a @ a,
    "large products": lambda: large @ large,
    "softmax of 2 rows": lambda: torch.softmax(rows, -1),
    "hundred tiny kernels": lambda: [tiny.neg() for _ in range(100)],
}
for name, function in programs.items():
    seconds(function, one, other)  # warm-up
    print(f"two {name}, one stream: {min(seconds(function, one, one) for _ in range(5)) * 1e3:.3f} ms")
    print(f"two {name}, two streams: {min(seconds(function, one, other) for _ in range(5)) * 1e3:.3f} ms")
