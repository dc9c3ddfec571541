"""Copies and computation run side by side, if they are on two streams and the host memory is pinned.

A hundred matrices of 64 MiB are copied to the GPU, and two other matrices are multiplied.
"""

import time

import torch

pinned = torch.randn(4096, 4096).pin_memory()
x = torch.randn(10240, 10240, device="cuda")
main, side = torch.cuda.current_stream(), torch.cuda.Stream()


def seconds(copies, product):
    """Each argument is the stream of that work; None leaves the work out."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    if copies:
        with torch.cuda.stream(copies):
            for _ in range(100):
                pinned.to("cuda", non_blocking=True)
    if product:
        with torch.cuda.stream(product):
            x @ x
    torch.cuda.synchronize()
    return time.perf_counter() - begin


seconds(main, main)  # the first time takes memory and loads libraries,
seconds(side, main)  # and each stream has memory of its own

# %% Work of one stream is done in order. Work of two streams is not.
one, two = seconds(main, main), seconds(side, main)
print(f"one stream: {one:.3f} s")
print(f"two streams: {two:.3f} s")

# %% Nothing can be faster than the longer of the two.
copies, product = seconds(side, None), seconds(None, main)
print(f"copies alone: {copies:.3f} s")
print(f"product alone: {product:.3f} s")
print(f"longer of the two: {max(copies, product):.3f} s")
