"""Collectives on the virtual GPU and, of the same values, on the CPU by gloo: RANK WORLD FILE BACKEND, and the file is
where the ranks meet.
"""

import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_reduce as functional
from torch.nn.parallel import DistributedDataParallel
from virtual.torch_cuda.programs.telling import fact

RANK, WORLD = int(sys.argv[1]), int(sys.argv[2])
NCCL = sys.argv[4] == "nccl"
Tensors = list[torch.Tensor]


def values(device: str, *numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32, device=device)


def slots(device: str) -> Tensors:
    return [values(device, -1) for _ in range(WORLD)]


def reduced(**how: object) -> Callable[[str], Tensors]:
    def all_reduce(device: str) -> Tensors:
        tensor = values(device, RANK + 1, 2)
        dist.all_reduce(tensor, **how)
        return [tensor]

    return all_reduce


def waited(device: str) -> Tensors:
    tensor = values(device, RANK + 1, 2)
    dist.all_reduce(tensor, async_op=True).wait()
    return [tensor * 2]


def by_future(device: str) -> Tensors:
    work = dist.all_reduce(values(device, RANK + 1, 2), async_op=True)
    return [tensor * 2 for tensor in work.get_future().wait()]


def strided(device: str) -> Tensors:
    tensor = torch.arange(6.0, device=device).view(2, 3).t()
    dist.all_reduce(tensor)
    return [tensor]


def integers(device: str) -> Tensors:
    tensor = torch.full((3,), RANK + 1, device=device)
    dist.all_reduce(tensor, op=dist.ReduceOp.PRODUCT if NCCL else dist.ReduceOp.BXOR)
    return [tensor]


def reduce(device: str) -> Tensors:
    tensor = values(device, RANK + 1, 2)
    dist.reduce(tensor, 0)
    return [tensor] if RANK == 0 else []


def reduce_scatter(device: str) -> Tensors:
    tensor = values(device, -1)
    dist.reduce_scatter(tensor, [values(device, RANK + place) for place in range(WORLD)])
    return [tensor]


def all_to_all(device: str) -> Tensors:
    tensors = slots(device)
    dist.all_to_all(tensors, [values(device, 10 * RANK + place) for place in range(WORLD)])
    return tensors


def gather(device: str) -> Tensors:
    tensors = slots(device) if RANK == 0 else []
    dist.gather(values(device, RANK), tensors or None, 0)
    return tensors


def scatter(device: str) -> Tensors:
    tensor = values(device, -1)
    dist.scatter(tensor, [values(device, place) for place in range(WORLD)] if RANK == 0 else None, 0)
    return [tensor]


def all_gather(device: str) -> Tensors:
    tensors = slots(device)
    dist.all_gather(tensors, values(device, RANK))
    return tensors


def broadcast(device: str) -> Tensors:
    tensor = values(device, RANK + 3)
    dist.broadcast(tensor, 0)
    return [tensor]


def halves(device: str) -> Tensors:
    tensor = torch.tensor([RANK + 1, 0.5], dtype=torch.bfloat16, device=device)
    dist.all_reduce(tensor)
    return [tensor]


def parts(device: str) -> Tensors:
    """Of one tensor: gathered, and scattered as sums."""
    whole, sums = values(device, *[-1] * 2 * WORLD), values(device, -1, -1)
    dist.all_gather_into_tensor(whole, values(device, RANK, 7))
    dist.reduce_scatter_tensor(sums, whole.clone())
    return [whole, sums]


def uneven(device: str) -> Tensors:
    """Rank i sends j + 1 rows to rank j."""
    mine = torch.full(((WORLD * (WORLD + 1)) // 2, 2), float(RANK), device=device)
    got = torch.empty((RANK + 1) * WORLD, 2, device=device)
    dist.all_to_all_single(got, mine, [RANK + 1] * WORLD, [place + 1 for place in range(WORLD)])
    return [got]


def messages(device: str) -> Tensors:
    """A ring, and back."""
    before, after = (RANK - 1) % WORLD, (RANK + 1) % WORLD
    got, back = values(device, -1), values(device, -1)
    if WORLD == 1:
        return [got]
    sends = dist.P2POp(dist.isend, values(device, RANK), after)
    for work in dist.batch_isend_irecv([sends, dist.P2POp(dist.irecv, got, before)]):
        work.wait()
    first, second = (dist.send, dist.recv) if RANK % 2 == 0 else (dist.recv, dist.send)
    for call in (first, second):
        call(back if call is dist.recv else got, after if call is dist.recv else before)
    return [got, back]


def in_a_group(device: str) -> Tensors:
    """Rank 0 alone, and then all, in groups of their own."""
    alone, every = dist.new_group([0]), dist.new_group(list(range(WORLD)))
    tensor = values(device, RANK + 1)
    if RANK == 0:
        dist.all_reduce(tensor, group=alone)
    dist.all_reduce(tensor, group=every)
    return [tensor]


def weighted(device: str) -> Tensors:
    """Each rank multiplies before all add up."""
    tensor = values(device, RANK + 1, 4)
    dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(0.5))
    return [tensor]


def objects(device: str) -> Tensors:
    found: list[object] = [None] * WORLD
    dist.all_gather_object(found, {"rank": RANK})
    return [values(device, *[float(one["rank"]) for one in found])]


def all_reduce_coalesced(device: str) -> Tensors:
    tensors = [values(device, RANK), values(device, RANK, 5)]
    dist.all_reduce_coalesced(tensors)
    return tensors


def trained(**how: object) -> Callable[[str], Tensors]:
    """The gradients and parameters after three steps, of data that each rank has its own of."""

    def train(device: str) -> Tensors:
        torch.manual_seed(0)
        layers = (torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        model = DistributedDataParallel(torch.nn.Sequential(*layers).to(device), **how)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        batch = torch.arange(12.0).view(3, 4).add(RANK).div(7).to(device)
        for _ in range(3):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
        return [tensor.detach() for each in model.parameters() for tensor in (each, each.grad)]

    return train


def normalized(form: torch.memory_format) -> float:
    """How far SyncBatchNorm's results are from those of one BatchNorm of all ranks' data, of other sizes each."""
    torch.manual_seed(0)
    parts = [torch.randn(rank + 2, 3, 4, 4).to(memory_format=form) for rank in range(WORLD)]
    weights = [torch.randn_like(part) for part in parts]
    whole, alone = torch.cat(parts).requires_grad_(), torch.nn.BatchNorm2d(3)
    expected = alone(whole)
    (expected * torch.cat(weights)).sum().backward()
    mine = parts[RANK].cuda().requires_grad_()
    layer = torch.nn.SyncBatchNorm(3).cuda()
    out = layer(mine)
    (out * weights[RANK].cuda()).sum().backward()
    for parameter in layer.parameters():
        dist.all_reduce(parameter.grad)
    sizes = [len(part) for part in parts]
    pairs = [
        (out, expected.split(sizes)[RANK]),
        (mine.grad, whole.grad.split(sizes)[RANK]),
        (layer.weight.grad, alone.weight.grad),
        (layer.bias.grad, alone.bias.grad),
        (layer.running_mean, alone.running_mean),
        (layer.running_var, alone.running_var),
    ]
    assert out.is_contiguous(memory_format=form)
    return max(float((here.detach().cpu() - there.detach()).abs().max()) for here, there in pairs)


def on_both(run: Callable[[str], Tensors]) -> list[object]:
    """What it gives on the virtual GPU, where that is, and what it gives on the CPU."""
    here, there = run("cuda"), run("cpu")
    return [[tensor.tolist() for tensor in here], all(tensor.is_cuda for tensor in here), [t.tolist() for t in there]]


def times() -> dict[str, float]:
    """Of 16 MiB, on the current stream, ms."""
    tensor, host = torch.ones(1 << 22, device="cuda"), torch.empty(1 << 22, pin_memory=True)

    def copies() -> None:
        host.copy_(tensor, non_blocking=True)
        tensor.copy_(host, non_blocking=True)

    return {"all_reduce": took(lambda: dist.all_reduce(tensor)), "copies": took(copies)}


def took(run: Callable[[], object]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


dist.init_process_group(
    "cpu:gloo,cuda:nccl" if NCCL else "gloo", init_method=f"file://{sys.argv[3]}", rank=RANK, world_size=WORLD
)
for name, run in {
    "all_reduce": reduced(),
    "all_reduce, largest": reduced(op=dist.ReduceOp.MAX),
    "all_reduce, mean": reduced(op=dist.ReduceOp.AVG),
    "all_reduce, waited for": waited,
    "all_reduce, its future": by_future,
    "all_reduce, functional": lambda device: [functional(values(device, RANK + 1), "sum", list(range(WORLD))) + 0],
    "all_reduce, strided": strided,
    "all_reduce, integers": integers,
    "reduce": reduce,
    "reduce_scatter": reduce_scatter,
    "all_to_all": all_to_all,
    "gather": gather,
    "scatter": scatter,
    "all_gather": all_gather,
    "broadcast": broadcast,
    "bfloat16": halves,
    "parts of a tensor": parts,
    "all_to_all, uneven": uneven,
    "objects": objects,
    "messages": messages,
    "groups": in_a_group,
    "trained": trained(),
    "trained, gradients in buckets": trained(gradient_as_bucket_view=True),
}.items():
    fact(name, lambda run=run: on_both(run))
fact("all_reduce_coalesced", lambda: [each.tolist() for each in all_reduce_coalesced("cuda")])
if NCCL:
    fact("weighted", lambda: weighted("cuda")[0].tolist())
    fact("barrier", lambda: dist.barrier())
fact("SyncBatchNorm", lambda: normalized(torch.contiguous_format))
fact("SyncBatchNorm, channels last", lambda: normalized(torch.channels_last))
fact("times", times)
dist.destroy_process_group()
