"""Which operators of torch's own wait, if each request for memory waits for a stream: python … DRIVER MEMORY"""

import ctypes
import json
import sys

import torch

from unstall.guarding import _hooks

driver, memory = sys.argv[1], ctypes.CDLL(sys.argv[2])
assert memory.load(driver.encode())
waits = []


def before(kind, operators, *_):
    waits.append(operators)
    return 0


_hooks.install(driver, {"cuStreamSynchronize": (1, 2000)}, before, lambda number, ns: 0, 1000)
_hooks.switch(True)
x = torch.randn(8, 8, requires_grad=True)
w = torch.randn(8, 8)
loss = (x @ w).sum()
cases = {
    "add": lambda: w + w,
    "matmul": lambda: w @ w,
    "linear": lambda: torch.nn.functional.linear(w, w),
    "softmax": lambda: w.softmax(0),
    "nonzero": lambda: w.nonzero(),
    "conv2d": lambda: torch.nn.functional.conv2d(w[None, None], w[None, None]),
    "backward": lambda: loss.backward(),
}
outermost = {}
for name, case in cases.items():
    waits.clear()
    memory.arm(1)
    case()
    memory.arm(0)
    outermost[name] = sorted({operators[0] for operators in waits})
print(json.dumps({"outermost": outermost, "searches": memory.searches()}))
