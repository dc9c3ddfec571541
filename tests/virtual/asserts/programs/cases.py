"""One operator with wrong values a device: what its call gave, and what a wait for the device said then."""

import json
import sys

import torch
from torch.nn import functional

BAD = [0, 9]


def cases():
    x, long = torch.ones(4, 5), torch.tensor
    rows, wide = torch.ones(2, 5), torch.tensor([[9]])
    one = torch.ones(1, 1)
    return {
        "embedding": lambda d: functional.embedding(long(BAD).to(d), x.to(d)),
        "index": lambda d: x.to(d)[long(BAD).to(d)],
        "index_put_": lambda d: x.to(d).index_put_((long(BAD).to(d),), rows.to(d)),
        "index_put accumulating": lambda d: x.to(d).index_put((long(BAD).to(d),), rows.to(d), accumulate=True),
        "gather": lambda d: x.to(d).gather(1, wide.to(d)),
        "scatter": lambda d: x.to(d).scatter(1, wide.to(d), one.to(d)),
        "scatter_": lambda d: x.to(d).scatter_(1, wide.to(d), 2.0),
        "scatter_add_": lambda d: x.to(d).scatter_add_(1, wide.to(d), one.to(d)),
        "scatter_reduce": lambda d: x.to(d).scatter_reduce(1, wide.to(d), one.to(d), "amax"),
        "index_select": lambda d: x.to(d).index_select(1, long(BAD).to(d)),
        "index_add": lambda d: x.to(d).index_add(0, long(BAD).to(d), rows.to(d)),
        "index_copy": lambda d: x.to(d).index_copy(0, long(BAD).to(d), rows.to(d)),
        "index_fill_": lambda d: x.to(d).index_fill_(0, long(BAD).to(d), 3.0),
        "take": lambda d: x.to(d).take(long([99]).to(d)),
        "cross_entropy": lambda d: functional.cross_entropy(x.to(d), long([0, 1, 2, 9]).to(d)),
        "nll_loss": lambda d: functional.nll_loss(torch.ones(1, 3, 2, 2).to(d), torch.full((1, 2, 2), 7).to(d)),
        "binary_cross_entropy": lambda d: functional.binary_cross_entropy(2 * x.to(d), x.to(d)),
        "one_hot": lambda d: functional.one_hot(long(BAD).to(d), 3),
        "multinomial": lambda d: torch.multinomial(long([-1.0, 2.0]).to(d), 1),
        "multinomial of nothing": lambda d: torch.multinomial(torch.zeros(3).to(d), 1),
        "bernoulli": lambda d: torch.bernoulli(long([3.0]).to(d)),
        "masked_scatter": lambda d: x.to(d).masked_scatter(x.to(d) > 0, torch.ones(3).to(d)),
        "embedding_bag": lambda d: functional.embedding_bag(long([BAD]).to(d), x.to(d)),
        "half": lambda d: x.half().to(d).gather(1, wide.to(d)),
        "assert_async": lambda d: torch._assert_async(long(False).to(d)),
    }


def observed(device, call):
    try:
        given = call(f"cuda:{device}")
    except Exception as error:
        return {"at once": f"{type(error).__name__}: {error}"}
    shape = None if given is None else list(given.shape)
    try:
        torch.cuda.synchronize(device)
    except Exception as error:
        return {
            "shape": shape,
            "type": type(error).__name__,
            "is_runtime": isinstance(error, RuntimeError),
            "said": str(error),
        }
    return {"shape": shape, "said": ""}


first = int(sys.argv[1])
mine = list(cases().items())[first : first + torch.cuda.device_count()]
found = {name: observed(device, call) for device, (name, call) in enumerate(mine)}
json.dump(found, sys.stdout)
