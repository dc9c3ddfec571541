"""The sixth power of a random matrix, computed in four ways: not all sums are equal, yet all are right.

The author's matrix has 5,000 rows. This one has 500, as a virtual GPU computes on the CPU.
"""

import numpy
import torch

from unstall import compare_numbers

torch.manual_seed(0)
ROWS = 500
matrix = torch.randn(ROWS, ROWS)


def product_by_product(m):
    result = m
    for _ in range(5):
        result = result @ m
    return result


def by_squares(m):
    return torch.linalg.matrix_power(m, 6)


def by_numpy(m):
    return torch.from_numpy(numpy.linalg.matrix_power(m.cpu().numpy(), 6))


# %% The same sum in four ways.
sums = {
    "CPU": product_by_product(matrix).sum().item(),
    "GPU": product_by_product(matrix.cuda()).sum().item(),
    "NumPy": by_numpy(matrix).sum().item(),
    "matrix_power": by_squares(matrix).sum().item(),
}
for way, value in sums.items():
    print(f"{way}: {value:.0f}")
print(f"different numbers: {len(set(sums.values()))}")
print(f"largest difference: {(max(sums.values()) - min(sums.values())) / abs(sums['CPU']):.7%}")

# %% Is that rounding, or a bug? `compare_numbers` knows how far rounding can move these numbers.
answer = compare_numbers(product_by_product, matrix, across=["cuda", "float64", by_squares, by_numpy])
for way in answer:
    print(f"{way.way} against the CPU: {way.kind}")
print(answer["cuda"].why)
print(f"ways within rounding: {sum(way.agrees for way in answer)}")
