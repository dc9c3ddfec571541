"""Programs that learn from tables, graphs, fields, rays and moves, and one that a CUDA graph trains."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.held_out import Step


def tables() -> Step:
    """Thirty columns of categories and twenty of numbers, batches drawn on the CPU, and the AUC of each batch there."""
    sizes = torch.randint(3, 2000, (30,)).tolist()
    embedded = nn.ModuleList([nn.Embedding(size, min(50, size // 2 + 1)) for size in sizes])
    width = sum(each.embedding_dim for each in embedded if isinstance(each, nn.Embedding)) + 20
    layers: list[nn.Module] = []
    for into, out in ((width, 512), (512, 256), (256, 64)):
        layers += [nn.Linear(into, out), nn.ReLU(), nn.BatchNorm1d(out), nn.Dropout(0.2)]
    normed, deep = nn.BatchNorm1d(20), nn.Sequential(*layers, nn.Linear(64, 1))
    model = nn.ModuleList([embedded, normed, deep]).cuda()
    names = torch.stack([torch.randint(0, size, (100_000,)) for size in sizes], 1)
    numbers, labels = torch.randn(100_000, 20), (torch.rand(100_000) < 0.2).float()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-6, fused=True)

    def auc(scores: Tensor, truth: Tensor) -> float:
        ranks = torch.empty_like(scores)
        ranks[scores.argsort()] = torch.arange(1.0, len(scores) + 1)
        right = truth.sum().item()
        return (ranks[truth == 1].sum().item() - right * (right + 1) / 2) / (right * (len(truth) - right))

    def step() -> tuple[float, float]:
        rows = torch.randint(0, 100_000, (4096,))
        name, number, label = (each[rows].cuda() for each in (names, numbers, labels))
        found = [table(name[:, at]) for at, table in enumerate(embedded)]
        scores = deep(torch.cat([functional.dropout(torch.cat(found, 1), 0.1), normed(number)], 1)).squeeze(1)
        loss = functional.binary_cross_entropy_with_logits(scores, label, pos_weight=torch.tensor(4.0, device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item(), auc(scores.detach().cpu(), labels[rows])

    return step


class _Heads(nn.Module):
    """A layer of a graph attention network: weights of edges that add up to one at each node."""

    def __init__(self, into: int, out: int, heads: int) -> None:
        super().__init__()
        self.project = nn.Linear(into, out * heads, bias=False)
        self.shape = (-1, heads, out)
        self.source, self.target = (nn.Parameter(torch.randn(1, heads, out) * 0.1) for _ in range(2))

    def forward(self, x: Tensor, ends: Tensor) -> Tensor:
        source, target = ends
        found = self.project(functional.dropout(x, 0.6, self.training)).view(self.shape)
        sent, taken = ((found * each).sum(-1) for each in (self.source, self.target))
        scores = functional.leaky_relu(sent[source] + taken[target], 0.2)
        index = target[:, None].expand_as(scores)
        most = torch.full_like(sent, -math.inf).scatter_reduce(0, index, scores, "amax", include_self=True)
        weights = (scores - most[target].detach()).exp()
        weights = weights / (torch.zeros_like(sent).scatter_add(0, index, weights)[target] + 1e-16)
        weights = functional.dropout(weights, 0.6, self.training)
        return torch.zeros_like(found).index_add(0, target, found[source] * weights[..., None])


def heads() -> Step:
    """A graph attention network on a graph of 10,000 nodes, and its accuracy on other nodes after each step."""
    nodes = 10_000
    loops = torch.arange(nodes).expand(2, -1)
    ends = torch.cat([torch.randint(0, nodes, (2, 80_000)), loops], 1).cuda()
    features, labels = torch.rand(nodes, 300).cuda(), torch.randint(0, 12, (nodes,)).cuda()
    taught, held = torch.randperm(nodes).cuda().split([6000, 4000])
    one, other = _Heads(300, 16, 8).cuda(), _Heads(128, 12, 4).cuda()
    model = nn.ModuleList([one, other])
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)

    def scores() -> Tensor:
        return other(functional.elu(one(features, ends).flatten(1)), ends).mean(1)  # type: ignore[no-any-return]

    def step() -> tuple[float, float]:
        model.train()
        optimizer.zero_grad()
        loss = functional.cross_entropy(scores()[taught], labels[taught])
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            right = scores()[held].argmax(1).eq(labels[held]).sum()
        return float(loss), int(right) / len(held)

    return step


class _Spectral(nn.Module):
    """Multiplies the low frequencies of a field by complex weights."""

    def __init__(self, width: int, modes: int) -> None:
        super().__init__()
        self.modes = modes
        self.low, self.high = (
            nn.Parameter(torch.rand(width, width, modes, modes, dtype=torch.cfloat) / width**2) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        waves, modes = torch.fft.rfft2(x), self.modes
        found = torch.zeros_like(waves)
        found[:, :, :modes, :modes] = torch.einsum("bixy,ioxy->boxy", waves[:, :, :modes, :modes], self.low)
        found[:, :, -modes:, :modes] = torch.einsum("bixy,ioxy->boxy", waves[:, :, -modes:, :modes], self.high)
        return torch.fft.irfft2(found, s=x.shape[-2:])  # type: ignore[no-any-return]


def operators() -> Step:
    """A Fourier neural operator for the flow through a porous medium, on a grid of 64 x 64."""
    lift, lower = nn.Linear(3, 32), nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 1))
    spectral = nn.ModuleList([_Spectral(32, 12) for _ in range(4)])
    plain = nn.ModuleList([nn.Conv2d(32, 32, 1) for _ in range(4)])
    model = nn.ModuleList([lift, lower, spectral, plain]).cuda()
    fields, wanted = torch.rand(20, 64, 64, 1), torch.rand(20, 64, 64)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100, 0.5)

    def grid(x: Tensor) -> Tensor:
        line = torch.linspace(0, 1, 64, device=x.device)
        rows = line.view(1, 64, 1, 1).repeat(len(x), 1, 64, 1)
        return torch.cat([rows, line.view(1, 1, 64, 1).repeat(len(x), 64, 1, 1)], -1)

    def step() -> float:
        x, y = fields.cuda(), wanted.cuda()
        x = lift(torch.cat([x, grid(x)], -1)).permute(0, 3, 1, 2)
        for at, (wave, straight) in enumerate(zip(spectral, plain, strict=True)):
            x = wave(x) + straight(x)
            x = functional.gelu(x) if at < 3 else x
        found = lower(x.permute(0, 2, 3, 1)).squeeze(-1)
        apart = torch.norm((found - y).reshape(len(y), -1), 2, 1) / torch.norm(y.reshape(len(y), -1), 2, 1)
        optimizer.zero_grad()
        apart.sum().backward()
        optimizer.step()
        schedule.step()
        return apart.mean().item()  # type: ignore[no-any-return]

    return step


def soft() -> Step:
    """Soft actor-critic: one move in a world on the CPU, whose moves are kept there, and one update of all networks."""

    def mlp(into: int, out: int) -> nn.Sequential:
        return nn.Sequential(nn.Linear(into, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, out))

    actor, critics = mlp(17, 12).cuda(), nn.ModuleList([mlp(23, 1), mlp(23, 1)]).cuda()
    targets = copy.deepcopy(critics).requires_grad_(False)
    weight = torch.zeros(1, requires_grad=True, device="cuda")
    acting = torch.optim.Adam(actor.parameters(), lr=3e-4)
    judging = torch.optim.Adam(critics.parameters(), lr=3e-4)
    weighing = torch.optim.Adam([weight], lr=3e-4)
    size, at = 20_000, 0
    states, actions, rewards = torch.randn(size, 17), torch.rand(size, 6) * 2 - 1, torch.randn(size, 1)
    following, ended = torch.randn(size, 17), torch.zeros(size, 1)
    turns, pushes, state = torch.randn(17, 17) * 0.2, torch.randn(6, 17) * 0.2, torch.randn(17)

    def acts(state: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = actor(state).chunk(2, dim=-1)
        normal = torch.distributions.Normal(mean, spread.clamp(-20, 2).exp())
        drawn = normal.rsample()
        action = torch.tanh(drawn)
        log = normal.log_prob(drawn) - torch.log(1 - action.pow(2) + 1e-6)
        return action, log.sum(-1, keepdim=True)

    def judged(by: nn.ModuleList, state: Tensor, action: Tensor) -> list[Tensor]:
        return [critic(torch.cat([state, action], dim=-1)) for critic in by]

    def step() -> tuple[float, float]:
        nonlocal at, state
        with torch.no_grad():
            action = acts(state.unsqueeze(0).to("cuda"))[0].cpu().squeeze(0)
        after = torch.tanh(state @ turns + action @ pushes)
        states[at], actions[at], rewards[at], following[at] = state, action, after.sum(), after
        at, state = (at + 1) % size, after
        rows = torch.randint(0, size, (256,))
        now, did, gain, then, over = (each[rows].to("cuda") for each in (states, actions, rewards, following, ended))
        with torch.no_grad():
            next_did, log = acts(then)
            worth = torch.min(*judged(targets, then, next_did)) - weight.exp() * log
            wanted = gain + 0.99 * (1 - over) * worth
        missed = sum(functional.mse_loss(each, wanted) for each in judged(critics, now, did))
        assert isinstance(missed, Tensor)
        judging.zero_grad()
        missed.backward()
        judging.step()
        fresh, log = acts(now)
        loss = (weight.exp().detach() * log - torch.min(*judged(critics, now, fresh))).mean()
        acting.zero_grad()
        loss.backward()
        acting.step()
        weighing.zero_grad()
        (-(weight * (log.detach() - 6.0)).mean()).backward()
        weighing.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(targets.parameters()), list(critics.parameters()), 0.005)
        return missed.item(), loss.item()

    return step


def captured() -> Step:
    """Heartbeats: a whole step of training in one CUDA graph, fed from pinned memory, its loss read after each."""

    def layer(into: int, out: int, stride: int) -> list[nn.Module]:
        return [nn.Conv1d(into, out, 7, stride, 3, bias=False), nn.BatchNorm1d(out), nn.ReLU(True)]

    model = nn.Sequential(
        *layer(12, 64, 2),
        *(each for at in range(4) for each in layer(64 * 2 ** (at // 2), 64 * 2 ** ((at + 1) // 2), 2)),
        *layer(256, 256, 1),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(256, 5),
    ).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)
    signals = itertools.cycle([torch.randn(128, 12, 1000).pin_memory() for _ in range(4)])
    labels = itertools.cycle([torch.randint(0, 5, (128,)).pin_memory() for _ in range(4)])
    x, y = torch.zeros(128, 12, 1000, device="cuda"), torch.zeros(128, dtype=torch.long, device="cuda")

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    def step() -> float:
        x.copy_(next(signals), non_blocking=True)
        y.copy_(next(labels), non_blocking=True)
        graph.replay()
        return loss.item()

    return step


class _Field(nn.Module):
    """The network of NeRF: eight layers with a skip, then density, and colour by direction."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(63, 256), *(nn.Linear(319 if at == 4 else 256, 256) for at in range(7))])
        self.density, self.features = nn.Linear(256, 1), nn.Linear(256, 256)
        self.colour = nn.Sequential(nn.Linear(256 + 27, 128), nn.ReLU(), nn.Linear(128, 3))

    def forward(self, places: Tensor, directions: Tensor) -> Tensor:
        encoded = _encoded(places, 10)
        x = encoded
        for at, layer in enumerate(self.layers):
            x = functional.relu(layer(torch.cat([encoded, x], -1) if at == 5 else x))
        beside = _encoded(directions, 4)[:, None].expand(-1, x.shape[1], -1)
        return torch.cat([self.colour(torch.cat([self.features(x), beside], -1)), self.density(x)], -1)


def _encoded(x: Tensor, count: int) -> Tensor:
    waves = [wave(x * 2.0**at) for at in range(count) for wave in (torch.sin, torch.cos)]
    return torch.cat([x, *waves], -1)


def _rendered(raw: Tensor, depths: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the colours of rays, and the weights of their points."""
    widths = torch.cat([depths[:, 1:] - depths[:, :-1], torch.full_like(depths[:, :1], 1e10)], -1)
    opaque = 1 - torch.exp(-functional.relu(raw[..., 3] + torch.randn_like(raw[..., 3])) * widths)
    left = torch.cumprod(torch.cat([torch.ones_like(opaque[:, :1]), 1 - opaque + 1e-10], -1), -1)[:, :-1]
    weights = opaque * left
    return (weights[..., None] * torch.sigmoid(raw[..., :3])).sum(1), weights


def _finer(depths: Tensor, weights: Tensor, count: int) -> Tensor:
    """Draws depths by the weights, by the inverse of their cumulative distribution."""
    middles = (depths[:, 1:] + depths[:, :-1]) / 2
    chances = weights[:, 1:-1] + 1e-5
    sums = torch.cumsum(chances / chances.sum(-1, keepdim=True), -1)
    sums = torch.cat([torch.zeros_like(sums[:, :1]), sums], -1)
    drawn = torch.rand(len(depths), count, device=depths.device)
    above = torch.searchsorted(sums, drawn, right=True)
    low, high = (above - 1).clamp(min=0), above.clamp(max=sums.shape[-1] - 1)
    begin, end = torch.gather(sums, 1, low), torch.gather(sums, 1, high)
    share = (drawn - begin) / torch.where(end - begin < 1e-5, torch.ones_like(end), end - begin)
    return torch.gather(middles, 1, low) + share * (torch.gather(middles, 1, high) - torch.gather(middles, 1, low))


def rays() -> Step:
    """NeRF: 1024 rays of 64 points, drawn anew with 64 more where the first network sees something."""
    coarse, fine = _Field().cuda(), _Field().cuda()
    optimizer = torch.optim.Adam([*coarse.parameters(), *fine.parameters()], lr=5e-4)
    seen = torch.cat(
        [torch.randn(100_000, 3), functional.normalize(torch.randn(100_000, 3)), torch.rand(100_000, 3)], 1
    )
    seen = seen.cuda()
    line = torch.linspace(2.0, 6.0, 64, device="cuda")

    def step() -> tuple[float, float]:
        origins, directions, wanted = seen[torch.randint(0, 100_000, (1024,), device="cuda")].split(3, dim=1)
        depths = line.expand(1024, 64) + torch.rand(1024, 64, device="cuda") * (4.0 / 64)
        places = origins[:, None] + directions[:, None] * depths[..., None]
        first, weights = _rendered(coarse(places, directions), depths)
        more = _finer(depths, weights.detach(), 64)
        depths, _ = torch.sort(torch.cat([depths, more], -1), -1)
        places = origins[:, None] + directions[:, None] * depths[..., None]
        second, _ = _rendered(fine(places, directions), depths)
        last = functional.mse_loss(second, wanted)
        loss = functional.mse_loss(first, wanted) + last
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] *= 0.9999
        return loss.item(), -10 * math.log10(max(last.item(), 1e-10))

    return step


LEARNING: dict[str, Callable[[], Step]] = {
    "tables": tables,
    "heads": heads,
    "operators": operators,
    "soft": soft,
    "captured": captured,
    "rays": rays,
}
