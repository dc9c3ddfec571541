"""Programs on images, volumes and points."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.held_out import Step


def dcgan() -> Step:
    """DCGAN on images of 64 x 64, its losses read in each step."""

    def up(into: int, out: int, stride: int, padding: int) -> list[nn.Module]:
        return [nn.ConvTranspose2d(into, out, 4, stride, padding, bias=False), nn.BatchNorm2d(out), nn.ReLU(True)]

    def down(into: int, out: int) -> list[nn.Module]:
        return [nn.Conv2d(into, out, 4, 2, 1, bias=False), nn.BatchNorm2d(out), nn.LeakyReLU(0.2, inplace=True)]

    def weights(module: nn.Module) -> None:
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            nn.init.normal_(module.weight, 0.0, 0.02)

    make = nn.Sequential(
        *up(100, 512, 1, 0),
        *up(512, 256, 2, 1),
        *up(256, 128, 2, 1),
        *up(128, 64, 2, 1),
        nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False),
        nn.Tanh(),
    )
    judge = nn.Sequential(
        nn.Conv2d(3, 64, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
        *down(64, 128),
        *down(128, 256),
        *down(256, 512),
        nn.Conv2d(512, 1, 4, 1, 0, bias=False),
        nn.Sigmoid(),
    )
    for net in (make, judge):
        net.cuda().apply(weights)
    one, other = (torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999)) for net in (make, judge))
    loss, images = nn.BCELoss(), torch.rand(64, 3, 64, 64) * 2 - 1

    def step() -> tuple[float, float, float]:
        judge.zero_grad()
        real = images.cuda()
        labels = torch.full((64,), 1.0, device="cuda")
        right = judge(real).view(-1)
        error = loss(right, labels)
        error.backward()
        made = make(torch.randn(64, 100, 1, 1, device="cuda"))
        labels.fill_(0.0)
        wrong = loss(judge(made.detach()).view(-1), labels)
        wrong.backward()
        other.step()
        make.zero_grad()
        labels.fill_(1.0)
        fooled = loss(judge(made).view(-1), labels)
        fooled.backward()
        one.step()
        return (error + wrong).item(), fooled.item(), right.mean().item()

    return step


def critic() -> Step:
    """Wasserstein GAN: a critic with a penalty on the norm of its gradient, which is derived once more."""
    judge = nn.Sequential(
        nn.Conv2d(1, 32, 5, 2, 2),
        nn.LeakyReLU(0.2),
        nn.Conv2d(32, 64, 5, 2, 2),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(64 * 49, 1),
    ).cuda()
    optimizer = torch.optim.Adam(judge.parameters(), lr=1e-4, betas=(0.0, 0.9))
    real, made = torch.rand(64, 1, 28, 28).cuda(), torch.rand(64, 1, 28, 28).cuda()

    def step() -> None:
        share = torch.rand(64, 1, 1, 1, device="cuda")
        between = (share * real + (1 - share) * made).requires_grad_(True)
        judged = judge(between)
        (slope,) = torch.autograd.grad(judged, between, torch.ones_like(judged), create_graph=True, retain_graph=True)
        penalty = ((slope.view(64, -1).norm(2, dim=1) - 1) ** 2).mean()
        loss = judge(made).mean() - judge(real).mean() + 10 * penalty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


class _Attending(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projected, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            each.view(batch, length, self.heads, -1).transpose(1, 2)
            for each in self.projected(self.before(x)).chunk(3, dim=-1)
        )
        weights = (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(dim=-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        found: Tensor = x + self.mlp(self.after(x))
        return found


def patches() -> Step:
    """A vision transformer from scratch, in float16 with a gradient scaler."""

    class ViT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Conv2d(3, 192, 4, 4)
            self.head_token = nn.Parameter(torch.zeros(1, 1, 192))
            self.places = nn.Parameter(torch.randn(1, 65, 192) * 0.02)
            self.layers = nn.Sequential(*(_Attending(192, 3) for _ in range(6)))
            self.head = nn.Sequential(nn.LayerNorm(192), nn.Linear(192, 10))

        def forward(self, x: Tensor) -> Tensor:
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.head_token.expand(len(x), -1, -1), x], dim=1) + self.places
            found: Tensor = self.head(self.layers(x)[:, 0])
            return found

    model = ViT().cuda()
    images, labels = torch.randn(128, 3, 32, 32).cuda(), torch.randint(0, 10, (128,)).cuda()
    optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=3e-4), torch.amp.GradScaler("cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.float16):
            loss = functional.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    return step


class _Residual(nn.Module):
    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, into), nn.SiLU(), nn.Conv2d(into, out, 3, padding=1))
        self.time = nn.Linear(128, out)
        self.second = nn.Sequential(nn.GroupNorm(8, out), nn.SiLU(), nn.Conv2d(out, out, 3, padding=1))
        self.beside = nn.Conv2d(into, out, 1) if into != out else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        found = self.first(x) + self.time(time)[:, :, None, None]
        return self.second(found) + self.beside(x)  # type: ignore[no-any-return]


def diffuses() -> Step:
    """Training of a diffusion model: a U-Net with GroupNorm, times embedded by sines, and skip connections."""

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.into, self.out = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 3, 3, padding=1)
            self.time = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 128))
            self.down = nn.ModuleList([_Residual(32, 64), _Residual(64, 128)])
            self.middle = _Residual(128, 128)
            self.up = nn.ModuleList([_Residual(256, 64), _Residual(128, 32)])

        def forward(self, x: Tensor, at: Tensor) -> Tensor:
            rates = torch.exp(-torch.arange(32, device=x.device) * (9.2 / 31))
            angles = at[:, None].float() * rates[None]
            time = self.time(torch.cat([angles.sin(), angles.cos()], dim=-1))
            x, kept = self.into(x), []
            for down in self.down:
                x = down(x, time)
                kept.append(x)
                x = functional.avg_pool2d(x, 2)
            x = self.middle(x, time)
            for up in self.up:
                x = functional.interpolate(x, scale_factor=2, mode="nearest")
                x = up(torch.cat([x, kept.pop()], dim=1), time)
            found: Tensor = self.out(x)
            return found

    model = UNet().cuda()
    images = torch.rand(16, 3, 32, 32).cuda()
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)

    def step() -> float:
        at = torch.randint(0, 1000, (16,), device="cuda")
        noise, share = torch.randn_like(images), kept[at].view(-1, 1, 1, 1)
        loss = functional.mse_loss(model(share.sqrt() * images + (1 - share).sqrt() * noise, at), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


class _Block(nn.Module):
    """A block of ConvNeXt: a depthwise convolution, and two layers on the channels of each pixel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.wide = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.scale = nn.LayerNorm(width, eps=1e-6), nn.Parameter(1e-6 * torch.ones(width))
        self.channels = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        found = self.scale * self.channels(self.norm(self.wide(x).permute(0, 2, 3, 1)))
        return x + found.permute(0, 3, 1, 2)  # type: ignore[no-any-return]


def averages() -> Step:
    """Depthwise convolutions; gradients of two batches accumulated and clipped, weights averaged over steps."""
    widths = [48, 96, 192]
    layers: list[nn.Module] = [nn.Conv2d(3, 48, 4, 4)]
    for width, wider in itertools.pairwise(widths):
        layers += [_Block(width), _Block(width), nn.BatchNorm2d(width), nn.Conv2d(width, wider, 2, 2)]
    pooled = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(192, 100)]
    model = nn.Sequential(*layers, _Block(192), _Block(192), *pooled).cuda()
    average = copy.deepcopy(model).requires_grad_(False)
    images, labels = torch.randn(2, 16, 3, 128, 128).cuda(), torch.randint(0, 100, (2, 16)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=1000)

    def step() -> None:
        for batch, label in zip(images, labels, strict=True):
            (functional.cross_entropy(model(batch), label, label_smoothing=0.1) / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for mean, weight in zip(average.parameters(), model.parameters(), strict=True):
                mean.mul_(0.999).add_(weight, alpha=0.001)

    return step


def clips() -> Step:
    """A small network of 3D convolutions on clips of 8 frames."""

    def layer(into: int, out: int) -> list[nn.Module]:
        return [nn.Conv3d(into, out, 3, padding=1), nn.BatchNorm3d(out), nn.ReLU(), nn.MaxPool3d((1, 2, 2))]

    model = nn.Sequential(
        *layer(3, 16), *layer(16, 32), *layer(32, 64), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(64, 20)
    ).cuda()
    frames, labels = torch.randn(4, 3, 8, 64, 64).cuda(), torch.randint(0, 20, (4,)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4)

    def step() -> tuple[float, int]:
        optimizer.zero_grad()
        scores = model(frames)
        loss = functional.cross_entropy(scores, labels)
        loss.backward()
        optimizer.step()
        return loss.item(), int((scores.argmax(1) == labels).sum().item())

    return step


def codebooks() -> Step:
    """VQ-VAE: the nearest entry of a codebook for each pixel, with a straight-through gradient."""
    read = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1), nn.ReLU(), nn.Conv2d(64, 64, 4, 2, 1)).cuda()
    book = nn.Embedding(512, 64).cuda()
    write = nn.Sequential(nn.ConvTranspose2d(64, 64, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(64, 3, 4, 2, 1)).cuda()
    x = torch.rand(32, 3, 32, 32).cuda()
    optimizer = torch.optim.Adam(nn.ModuleList([read, book, write]).parameters(), lr=1e-3)

    def step() -> tuple[float, float]:
        codes = read(x).permute(0, 2, 3, 1).contiguous()
        flat = codes.view(-1, 64)
        nearest = torch.cdist(flat, book.weight).argmin(1)
        chosen = book(nearest).view_as(codes)
        loss = functional.mse_loss(chosen, codes.detach()) + 0.25 * functional.mse_loss(chosen.detach(), codes)
        straight = codes + (chosen - codes).detach()
        loss = loss + functional.mse_loss(write(straight.permute(0, 3, 1, 2)), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        used = functional.one_hot(nearest, 512).float().mean(0)
        return loss.item(), torch.exp(-(used * (used + 1e-10).log()).sum()).item()

    return step


def points() -> Step:
    """PointNet: a network that turns the points, features of each point, and their largest ones."""

    def shared(*widths: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for into, out in itertools.pairwise(widths):
            layers += [nn.Conv1d(into, out, 1), nn.BatchNorm1d(out), nn.ReLU()]
        return nn.Sequential(*layers)

    turns, turned = shared(3, 64, 128, 256), nn.Linear(256, 9)
    features, head = shared(3, 64, 128, 512), nn.Sequential(nn.Linear(512, 128), nn.Dropout(0.3), nn.Linear(128, 40))
    model = nn.ModuleList([turns, turned, features, head]).cuda()
    cloud, labels = torch.randn(32, 3, 1024).cuda(), torch.randint(0, 40, (32,)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> None:
        turn = turned(turns(cloud).max(dim=2)[0]).view(-1, 3, 3) + torch.eye(3, device="cuda")
        moved = torch.bmm(cloud.transpose(1, 2), turn).transpose(1, 2)
        scores = functional.log_softmax(head(features(moved).max(dim=2)[0]), dim=1)
        straight = torch.bmm(turn, turn.transpose(1, 2)) - torch.eye(3, device="cuda")
        loss = functional.nll_loss(scores, labels) + 1e-3 * straight.norm(dim=(1, 2)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def grows() -> Step:
    """A convolutional network whose batch grows from step to step, and then shrinks again."""
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(128 * 16, 10),
    ).cuda()
    sizes = itertools.cycle([16, 32, 48, 64, 96, 128, 80, 40])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def step() -> None:
        size = next(sizes)
        images, labels = torch.randn(size, 3, 48, 48), torch.randint(0, 10, (size,))
        loss = functional.cross_entropy(model(images.to("cuda")), labels.to("cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


IMAGES: dict[str, Callable[[], Step]] = {
    "dcgan": dcgan,
    "critic": critic,
    "patches": patches,
    "diffuses": diffuses,
    "averages": averages,
    "clips": clips,
    "codebooks": codebooks,
    "points": points,
    "grows": grows,
}
