"""Ten ordinary programs, each in a process of its own: their first step, later steps and memory, real and virtual.

    python -m benchmarks.held_out_programs --out real.json                                     # on a GPU
    python -m benchmarks.held_out_programs --gpu h100 --against real.json                      # anywhere

The programs use torch alone. None had a part in the costs of the virtual GPU when they were first run (2026-11-27);
since then, the recurrent layers of `letters` and the gradients of `clicks` are modelled. What the H100s of three
machines took is benchmarks/results/held_out_programs_h100.json; of the third, steps only. A step is the median over
rounds of steps that end with a wait for the device; the first one has every first use of the device in it.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.held_out import Step, compared


def letters() -> Step:
    """A model of letters: an embedding, cuDNN's LSTM, and the loss over all positions."""
    table, layer, head = nn.Embedding(96, 128), nn.LSTM(128, 256, 2, batch_first=True), nn.Linear(256, 96)
    model = nn.ModuleList([table, layer, head]).cuda()
    text = torch.randint(0, 96, (32, 101)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def step() -> None:
        optimizer.zero_grad()
        found = head(layer(table(text[:, :-1]))[0])
        functional.cross_entropy(found.flatten(0, 1), text[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()

    return step


class _Down(nn.Module):
    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(into, out, 3, padding=1),
            nn.BatchNorm2d(out),
            nn.ReLU(True),
            nn.Conv2d(out, out, 3, padding=1),
            nn.ReLU(True),
        )

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layers(x)
        return found


def segments() -> Step:
    """A small U-Net with transposed convolutions, under autocast to bfloat16."""

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [3, 32, 64, 128]
            self.down = nn.ModuleList(_Down(a, b) for a, b in itertools.pairwise(widths))
            self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in ((64, 128), (32, 64)))
            self.merge = nn.ModuleList(_Down(2 * a, a) for a in (64, 32))
            self.head = nn.Conv2d(32, 5, 1)

        def forward(self, x: Tensor) -> Tensor:
            kept = []
            for at, down in enumerate(self.down):
                x = down(functional.max_pool2d(x, 2) if at else x)
                kept.append(x)
            for up, merge, beside in zip(self.up, self.merge, kept[-2::-1], strict=True):
                x = merge(torch.cat([up(x), beside], 1))
            found: Tensor = self.head(x)
            return found

    model = UNet().cuda()
    images, masks = torch.randn(8, 3, 128, 128).cuda(), torch.randint(0, 5, (8, 128, 128)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = functional.cross_entropy(model(images), masks)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def faces() -> Step:
    """A generator and a discriminator that train in turns, and read both losses."""
    make = nn.Sequential(nn.Linear(64, 256), nn.LeakyReLU(0.2), nn.Linear(256, 784), nn.Tanh()).cuda()
    judge = nn.Sequential(nn.Linear(784, 256), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(256, 1)).cuda()
    one, other = (torch.optim.Adam(each.parameters(), lr=2e-4, betas=(0.5, 0.999)) for each in (make, judge))
    real, loss = torch.rand(128, 784).cuda(), nn.BCEWithLogitsLoss()

    def step() -> tuple[float, float]:
        made = make(torch.randn(128, 64, device="cuda"))
        other.zero_grad()
        ones, zeros = torch.ones(128, 1, device="cuda"), torch.zeros(128, 1, device="cuda")
        judged = loss(judge(real), ones) + loss(judge(made.detach()), zeros)
        judged.backward()
        other.step()
        one.zero_grad()
        fooled = loss(judge(made), ones)
        fooled.backward()
        one.step()
        return judged.item(), fooled.item()

    return step


def codes() -> Step:
    """A variational autoencoder with its noise, two losses and Adam."""
    read = nn.Sequential(
        nn.Conv2d(1, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.Flatten()
    ).cuda()
    means, spreads = nn.Linear(64 * 49, 20).cuda(), nn.Linear(64 * 49, 20).cuda()
    write = nn.Sequential(
        nn.Linear(20, 64 * 49),
        nn.ReLU(),
        nn.Unflatten(1, (64, 7, 7)),
        nn.ConvTranspose2d(64, 32, 3, 2, 1, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(32, 1, 3, 2, 1, 1),
        nn.Sigmoid(),
    ).cuda()
    x = torch.rand(64, 1, 28, 28).cuda()
    optimizer = torch.optim.Adam(nn.ModuleList([read, means, spreads, write]).parameters())

    def step() -> None:
        found = read(x)
        mean, spread = means(found), spreads(found)
        drawn = mean + torch.exp(0.5 * spread) * torch.randn_like(spread)
        loss = functional.binary_cross_entropy(write(drawn), x, reduction="sum")
        loss = loss - 0.5 * torch.sum(1 + spread - mean.pow(2) - spread.exp())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def graphs() -> Step:
    """Two layers of a graph network: features gathered along edges, and added up at nodes."""
    nodes, edges = 20_000, 160_000
    x, ends = torch.randn(nodes, 64).cuda(), torch.randint(0, nodes, (2, edges)).cuda()
    weights = [nn.Linear(64, 64).cuda(), nn.Linear(64, 64).cuda()]
    degrees = torch.bincount(ends[1], minlength=nodes).clamp(min=1).unsqueeze(1).cuda()
    labels = torch.randint(0, 64, (nodes,)).cuda()
    optimizer = torch.optim.AdamW([each for layer in weights for each in layer.parameters()])

    def step() -> None:
        found = x
        for layer in weights:
            sent = layer(found).index_select(0, ends[0])
            found = functional.relu(torch.zeros_like(found).index_add(0, ends[1], sent) / degrees)
        optimizer.zero_grad()
        functional.cross_entropy(found, labels).backward()
        optimizer.step()

    return step


def denoises() -> Step:
    """Twenty rounds of a sampler: a small convolutional network, and arithmetic on images."""
    net = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.GroupNorm(8, 64), nn.SiLU(), nn.Conv2d(64, 3, 3, padding=1)
    ).cuda()
    noise = torch.linspace(1e-4, 0.02, 20).cuda()
    kept = torch.cumprod(1 - noise, 0)

    @torch.no_grad()
    def step() -> Tensor:
        x = torch.randn(4, 3, 64, 64, device="cuda")
        for at in reversed(range(20)):
            x = (x - noise[at] / (1 - kept[at]).sqrt() * net(x)) / (1 - noise[at]).sqrt()
            if at:
                x = x + noise[at].sqrt() * torch.randn_like(x)
        return x.clamp(-1, 1)

    return step


def plays() -> Step:
    """Policy gradients: actions drawn one by one for 32 moves, read by the host, then one update."""
    policy = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 4)).cuda()
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=1e-3)

    def step() -> None:
        state, logs, rewards = torch.zeros(8), [], []
        for _ in range(32):
            choice = torch.distributions.Categorical(logits=policy(state.cuda()))
            action = choice.sample()
            logs.append(choice.log_prob(action))
            rewards.append(float(action.item() % 2))
            state = torch.roll(state, 1) + 0.1
        gains = torch.tensor(rewards).cuda()
        loss = -(torch.stack(logs) * (gains - gains.mean())).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def clicks() -> Step:
    """A recommender: bags of embeddings, dense features and their products."""
    tables = nn.ModuleList(nn.EmbeddingBag(50_000, 32, mode="sum") for _ in range(8)).cuda()
    low = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 32)).cuda()
    high = nn.Sequential(nn.Linear(32 + 36, 64), nn.ReLU(), nn.Linear(64, 1)).cuda()
    dense, labels = torch.randn(512, 13).cuda(), torch.rand(512, 1).round().cuda()
    bags = [torch.randint(0, 50_000, (512, 4)).cuda() for _ in tables]
    pairs = torch.tril_indices(9, 9, -1).cuda()
    optimizer = torch.optim.Adagrad([*tables.parameters(), *low.parameters(), *high.parameters()], lr=0.01)

    def step() -> None:
        features = low(dense)
        rows = torch.stack([features, *(table(bag) for table, bag in zip(tables, bags, strict=True))], 1)
        products = torch.bmm(rows, rows.transpose(1, 2))[:, pairs[0], pairs[1]]
        loss = functional.binary_cross_entropy_with_logits(high(torch.cat([features, products], 1)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def translates() -> Step:
    """torch's own Transformer, with masks, label smoothing, and a schedule of the learning rate."""
    model = nn.Transformer(256, 4, 3, 3, 1024, batch_first=True).cuda()
    table, head = nn.Embedding(4000, 256).cuda(), nn.Linear(256, 4000).cuda()
    source, target = torch.randint(1, 4000, (16, 48)).cuda(), torch.randint(1, 4000, (16, 41)).cuda()
    future = nn.Transformer.generate_square_subsequent_mask(40).cuda()
    padding = torch.zeros(16, 48, dtype=torch.bool, device="cuda")
    optimizer = torch.optim.AdamW([*model.parameters(), *table.parameters(), *head.parameters()], lr=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)

    def step() -> None:
        found = head(model(table(source), table(target[:, :-1]), tgt_mask=future, src_key_padding_mask=padding))
        loss = functional.cross_entropy(found.flatten(0, 1), target[:, 1:].flatten(), label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()

    return step


def fits() -> Step:
    """Plain linear algebra: ridge regression by Cholesky, its residuals, and the largest of them."""
    x, y = torch.randn(4096, 256).cuda(), torch.randn(4096, 8).cuda()
    eye = torch.eye(256, device="cuda")

    def step() -> Tensor:
        lower = torch.linalg.cholesky(x.T @ x + 0.1 * eye)
        weights = torch.cholesky_solve(x.T @ y, lower)
        left = (x @ weights - y).square()
        return torch.topk(left.sum(1), 16).indices.sort().values

    return step


PROGRAMS: dict[str, Callable[[], Step]] = {
    "letters": letters,
    "segments": segments,
    "faces": faces,
    "codes": codes,
    "graphs": graphs,
    "denoises": denoises,
    "plays": plays,
    "clicks": clicks,
    "translates": translates,
    "fits": fits,
}

if __name__ == "__main__":
    sys.exit(compared(__doc__, "benchmarks.held_out_programs", PROGRAMS))
