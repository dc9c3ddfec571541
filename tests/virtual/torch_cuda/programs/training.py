"""What programs do with torch.cuda: loaders, mixed precision, saving, data-parallel training, random numbers."""

import copy
import tempfile
from pathlib import Path

import torch
import torch.cuda.comm
from torch import nn
from virtual.torch_cuda.programs.telling import fact


class Rows(torch.utils.data.Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((8,), float(index)), index % 10


def loaded() -> object:
    loader = torch.utils.data.DataLoader(Rows(), batch_size=8, num_workers=2, pin_memory=True)
    return [[x.is_pinned(), x.to("cuda", non_blocking=True).sum().item()] for x, _ in loader]


def mixed_precision() -> object:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cuda")
    x, y = torch.randn(64, 8, device="cuda"), torch.randint(0, 10, (64,), device="cuda")
    losses = []
    for _ in range(8):
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return [str(out.dtype), losses[-1] < losses[0], scaler.get_scale()]


def saved_and_loaded() -> object:
    model = nn.Linear(3, 3).cuda()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt"
        torch.save(model.state_dict(), path)
        places = [None, "cpu", "cuda:1", lambda storage, _: storage.cuda(1)]
        states = [torch.load(path, map_location=place) for place in places]
    same = all(torch.equal(state["weight"].cpu(), model.weight.cpu()) for state in states)
    return [*(str(state["weight"].device) for state in states), same, str(copy.deepcopy(model).weight.device)]


def data_parallel() -> object:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).cuda(0)
    alone = copy.deepcopy(model)
    x = torch.randn(6, 4, device="cuda")
    nn.DataParallel(model)(x).square().sum().backward()
    alone(x).square().sum().backward()
    return torch.allclose(model[0].weight.grad, alone[0].weight.grad, atol=1e-5)


def collectives() -> object:
    x = torch.arange(12.0, device="cuda:0").view(4, 3)
    parts = torch.cuda.comm.scatter(x, [0, 1])
    out = [torch.empty(2, 3, device=f"cuda:{index}") for index in range(2)]
    torch.cuda.comm.scatter(x, out=out)
    coalesced = torch.cuda.comm.broadcast_coalesced([x, x * 2], [0, 1])
    reduced = torch.cuda.comm.reduce_add_coalesced([[x, x], [x.cuda(1), x.cuda(1)]], 0)
    return {
        "broadcast": [str(part.device) for part in torch.cuda.comm.broadcast(x, [0, 1])],
        "scatter": [part.tolist() for part in parts] == [x[:2].tolist(), x[2:].tolist()],
        "sizes": [part.tolist() for part in torch.cuda.comm.scatter(torch.arange(5), [0, 1], chunk_sizes=[2, 3])],
        "gather": torch.equal(torch.cuda.comm.gather(parts, destination=0), x),
        "gather on the host": str(torch.cuda.comm.gather(parts, destination="cpu").device),
        "out": torch.equal(torch.cuda.comm.gather(out, out=torch.empty(4, 3, device="cuda:1")).cpu(), x.cpu()),
        "coalesced": [str(coalesced[1][1].device), torch.equal(coalesced[1][1].cpu(), (x * 2).cpu())],
        "reduced": torch.equal(reduced[1], x * 2),
    }


def nccl() -> object:
    xs = [torch.ones(4, device=f"cuda:{index}") * (index + 1) for index in range(2)]
    torch.cuda.nccl.all_reduce(xs)
    gathered = [torch.empty(8, device=f"cuda:{index}") for index in range(2)]
    torch.cuda.nccl.all_gather(xs, gathered)
    scattered = [torch.empty(2, device=f"cuda:{index}") for index in range(2)]
    torch.cuda.nccl.reduce_scatter(xs, scattered)
    return [xs[1].tolist(), gathered[1].tolist(), scattered[1].tolist()]


def random_numbers() -> object:
    state = torch.cuda.get_rng_state()
    first = torch.randn(4, device="cuda")
    torch.cuda.set_rng_state(state)
    again = torch.randn(4, device="cuda")
    torch.cuda.manual_seed_all(5)
    by_cuda = torch.rand(2, device="cuda:1")
    torch.manual_seed(5)
    by_torch = torch.rand(2, device="cuda:1")
    generator = torch.Generator("cuda").manual_seed(1)
    own = torch.rand(2, device="cuda", generator=generator)
    generator.manual_seed(1)
    return [
        torch.equal(first, again),
        torch.equal(by_cuda, by_torch),
        torch.equal(own, torch.rand(2, device="cuda", generator=generator)),
        list(state.shape),
        torch.cuda.initial_seed(),
        len(torch.cuda.get_rng_state_all()),
    ]


def who_draws() -> dict[str, bool]:
    """Whether it moves the device's generator."""
    functional, x = torch.nn.functional, torch.randn(1, 2, 8, 16, device="cuda")
    calls = {
        "attention": lambda: functional.scaled_dot_product_attention(x, x, x),
        "attention with dropout": lambda: functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
        "dropout": lambda: functional.dropout(x, 0.5),
        "dropout of 0": lambda: functional.dropout(x, 0.0),
        "LSTM": lambda: torch.nn.LSTM(16, 4, 2).cuda()(x[0]),
    }
    moved = {}
    for name, call in calls.items():
        before = torch.cuda.get_rng_state()
        call()
        moved[name] = not torch.equal(before, torch.cuda.get_rng_state())
    return moved


def compiled() -> object:
    @torch.compile(mode="reduce-overhead")  # type: ignore[untyped-decorator]
    def add(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    return [
        add(torch.ones(2, device="cuda")).tolist(),
        torch.compile(nn.Linear(2, 2).cuda())(add(torch.ones(2).cuda())).shape,
    ]


fact("loaded", loaded)
fact("mixed precision", mixed_precision)
fact("saved and loaded", saved_and_loaded)
fact("data parallel", data_parallel)
fact("collectives", collectives)
fact("nccl", nccl)
fact("random numbers", random_numbers)
fact("who draws", who_draws)
fact("random before cuda", lambda: torch.Generator("cuda").initial_seed())
fact("pinned", lambda: [torch.ones(3).pin_memory().is_pinned(), torch.empty(3, pin_memory=True).is_pinned()])
fact("compiled", compiled)
