"""Which calls the host waits in behind a kernel of 30 ms. The last line is JSON: by name, whether it waited."""

import json
import warnings

import torch
from torch import linalg
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence

SLEEP_CYCLES = 60_000_000

x, y = torch.rand(1000, device="cuda"), torch.rand(32, 8, device="cuda")
integers, weights = torch.randint(0, 50, (100_000,), device="cuda"), torch.rand(100_000, device="cuda")
a = torch.rand(64, 64, device="cuda")
symmetric = a @ a.T + 64 * torch.eye(64, device="cuda")
sequences, lengths = torch.rand(4, 10, 8, device="cuda"), torch.tensor([10, 8, 5, 2])
scores = torch.randn(50, 4, 20, device="cuda").log_softmax(2)
targets = torch.randint(1, 20, (4, 10), device="cuda")
steps, letters = torch.full((4,), 50), torch.full((4,), 10)


def assign() -> None:
    x[x > 0.5] = 1.0


CALLS = {
    "lu": lambda: linalg.lu(a),
    "qr": lambda: linalg.qr(a),
    "geqrf": lambda: torch.geqrf(a),
    "slogdet": lambda: linalg.slogdet(a),
    "kthvalue": lambda: x.kthvalue(3),
    "median": lambda: x.median(),
    "quantile": lambda: x.quantile(0.5),
    "multinomial": lambda: torch.multinomial(x, 10),
    "randperm": lambda: torch.randperm(1000, device="cuda"),
    "repeat_interleave by a number": lambda: torch.repeat_interleave(integers, 3),
    "cholesky_ex": lambda: linalg.cholesky_ex(symmetric),
    "a number assigned to a mask": assign,
    "one_hot of so many classes": lambda: functional.one_hot(integers, 50),
    "isclose": lambda: torch.isclose(x, x),
    "cdist": lambda: torch.cdist(y, y),
    "triu_indices": lambda: torch.triu_indices(10, 10, device="cuda"),
    "pack_padded_sequence": lambda: pack_padded_sequence(sequences, lengths, batch_first=True),
    "eigvals": lambda: linalg.eigvals(a),
    "eig": lambda: linalg.eig(a),
    "eigh": lambda: linalg.eigh(symmetric),
    "eigvalsh": lambda: linalg.eigvalsh(symmetric),
    "svd": lambda: linalg.svd(a),
    "cholesky": lambda: linalg.cholesky(symmetric),
    "inv": lambda: linalg.inv(symmetric),
    "solve": lambda: linalg.solve(symmetric, a),
    "lu_factor": lambda: linalg.lu_factor(symmetric),
    "ldl_factor": lambda: linalg.ldl_factor(symmetric),
    "lstsq": lambda: linalg.lstsq(symmetric, a),
    "matrix_rank": lambda: linalg.matrix_rank(a),
    "pinv": lambda: linalg.pinv(a),
    "matrix_exp": lambda: linalg.matrix_exp(symmetric.double()),
    "bincount": lambda: torch.bincount(integers),
    "bincount with minlength": lambda: torch.bincount(integers, minlength=50),
    "bincount with weights": lambda: torch.bincount(integers, weights),
    "unique": lambda: torch.unique(integers),
    "mode": lambda: integers.mode(),
    "cov": lambda: torch.cov(y),
    "corrcoef": lambda: torch.corrcoef(y),
    "tensor of a list": lambda: torch.tensor([False] * 4, device="cuda"),
    "allclose": lambda: torch.allclose(x, x),
    "index by a mask": lambda: x[x > 0.5],
    "one_hot": lambda: functional.one_hot(integers),
    "ctc_loss": lambda: functional.ctc_loss(scores, targets, steps, letters),
    "histc without bounds": lambda: torch.histc(x, 50),
    "histc": lambda: torch.histc(x, 50, min=0, max=1),
}

warnings.simplefilter("ignore")
told = {}
for name, call in CALLS.items():
    call()  # what only a first call does might wait
    torch.cuda.synchronize()
    torch.cuda._sleep(SLEEP_CYCLES)
    slept = torch.cuda.Event()
    slept.record()
    call()
    told[name] = slept.query()
print(json.dumps(told))
