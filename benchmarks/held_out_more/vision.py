"""Networks of vision at usual sizes, in training: most of their steps are long on the device."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import swa_utils

from benchmarks.held_out import Step


class _Windows(nn.Module):
    """A block of Swin: attention within windows of 7 x 7, which every other block shifts."""

    index: Tensor
    mask: Tensor

    def __init__(self, width: int, heads: int, side: int, shift: int, dropped: float) -> None:
        super().__init__()
        self.heads, self.shift, self.dropped = heads, shift if side > 7 else 0, dropped
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.bias = nn.Parameter(torch.zeros(13 * 13, heads))
        places = torch.stack(torch.meshgrid(torch.arange(7), torch.arange(7), indexing="ij")).flatten(1)
        apart = places[:, :, None] - places[:, None] + 6
        self.register_buffer("index", (apart[0] * 13 + apart[1]).flatten())
        regions, nth = torch.zeros(1, side, side, 1), 0
        if self.shift:
            cuts = (slice(0, -7), slice(-7, -self.shift), slice(-self.shift, None))
            for rows, columns in itertools.product(cuts, cuts):
                regions[:, rows, columns], nth = nth, nth + 1
        seen = self.parted(regions).squeeze(-1)
        self.register_buffer("mask", torch.where(seen[:, :, None] == seen[:, None], 0.0, -100.0))

    def parted(self, x: Tensor) -> Tensor:
        batch, side, _, width = x.shape
        return x.view(batch, side // 7, 7, side // 7, 7, width).transpose(2, 3).reshape(-1, 49, width)

    def attend(self, x: Tensor) -> Tensor:
        batch, side, _, width = x.shape
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        rows = self.parted(x)
        q, k, v = self.qkv(rows).view(len(rows), 49, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = (q * (width // self.heads) ** -0.5) @ k.transpose(-2, -1)
        weights = weights + self.bias[self.index].view(49, 49, -1).permute(2, 0, 1).contiguous()
        if self.shift:
            weights = weights.view(batch, -1, self.heads, 49, 49) + self.mask[None, :, None]
            weights = weights.view(-1, self.heads, 49, 49)
        found = self.out((weights.softmax(-1) @ v).transpose(1, 2).reshape(rows.shape))
        found = found.view(batch, side // 7, side // 7, 7, 7, width).transpose(2, 3).reshape(x.shape)
        return torch.roll(found, (self.shift, self.shift), (1, 2)) if self.shift else found

    def drop(self, x: Tensor) -> Tensor:
        if not self.training or not self.dropped:
            return x
        return x * x.new_empty(len(x), 1, 1, 1).bernoulli_(1 - self.dropped).div_(1 - self.dropped)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attend(self.before(x)))
        return x + self.drop(self.mlp(self.after(x)))


class _Merge(nn.Module):
    """Four neighbouring patches become one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.less = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        corners = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        found: Tensor = self.less(self.norm(torch.cat(corners, -1)))
        return found


def windows() -> Step:
    """Swin-T on 32 images of 224 x 224 with stochastic depth, in bfloat16 with a fused AdamW."""

    class Swin(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch, self.norm = nn.Conv2d(3, 96, 4, 4), nn.LayerNorm(96)
            layers: list[nn.Module] = []
            for at, depth in enumerate([2, 2, 6, 2]):
                width, heads, side = 96 * 2**at, 3 * 2**at, 56 // 2**at
                layers += [_Windows(width, heads, side, 3 * (nth % 2), 0.05 * at) for nth in range(depth)]
                layers += [_Merge(width)] if at < 3 else []
            self.layers = nn.Sequential(*layers)
            self.head = nn.Sequential(nn.LayerNorm(768), nn.Linear(768, 1000))

        def forward(self, x: Tensor) -> Tensor:
            x = self.layers(self.norm(self.patch(x).permute(0, 2, 3, 1)))
            found: Tensor = self.head(x.mean((1, 2)))
            return found

    model = Swin().cuda()
    images, labels = torch.randn(32, 3, 224, 224).cuda(), torch.randint(0, 1000, (32,)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.05, fused=True)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = functional.cross_entropy(model(images), labels, label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


class _Squeezed(nn.Module):
    """A block of EfficientNet: wider, depthwise, channels weighted by squeeze and excitation, narrow again."""

    def __init__(self, into: int, out: int, kernel: int, stride: int, wider: int) -> None:
        super().__init__()
        inner = into * wider
        widened = [nn.Conv2d(into, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.SiLU(True)] if wider > 1 else []
        self.wide = nn.Sequential(
            *widened,
            nn.Conv2d(inner, inner, kernel, stride, kernel // 2, groups=inner, bias=False),
            nn.BatchNorm2d(inner),
            nn.SiLU(True),
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(inner, max(1, into // 4), 1),
            nn.SiLU(True),
            nn.Conv2d(max(1, into // 4), inner, 1),
            nn.Sigmoid(),
        )
        self.narrow = nn.Sequential(nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out))
        self.same = stride == 1 and into == out

    def forward(self, x: Tensor) -> Tensor:
        found = self.wide(x)
        found = self.narrow(found * self.squeeze(found))
        return x + found if self.same else found  # type: ignore[no-any-return]


def squeezes() -> Step:
    """EfficientNet-B0 in channels_last and bfloat16, with RMSprop and an average of the weights."""
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.SiLU(True)]
    into = 32
    for wider, out, depth, stride, kernel in (
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ):
        for nth in range(depth):
            layers.append(_Squeezed(into, out, kernel, 1 if nth else stride, wider))
            into = out
    layers += [nn.Conv2d(320, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.SiLU(True)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, 200)]
    model = nn.Sequential(*layers, *head).cuda()
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    average = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.999))
    images, labels = torch.randn(64, 3, 192, 192).pin_memory(), torch.randint(0, 200, (64,)).pin_memory()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01, alpha=0.9, momentum=0.9, weight_decay=1e-5)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)

    def step() -> None:
        x = images.to("cuda", non_blocking=True, memory_format=torch.channels_last)
        y = labels.to("cuda", non_blocking=True)
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        average.update_parameters(model)

    return step


class _Sharp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(True), nn.Conv2d(64, 64, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.1 * self.layers(x)  # type: ignore[no-any-return]


def enlarges() -> Step:
    """Super-resolution (EDSR) with pixel shuffle: images made small on the GPU, a loss of L1 and SSIM, PSNR read."""
    torch.backends.cudnn.benchmark = True
    body = nn.Sequential(*(_Sharp() for _ in range(8)), nn.Conv2d(64, 64, 3, padding=1))
    up = [nn.Conv2d(64, 256, 3, padding=1), nn.PixelShuffle(2), nn.Conv2d(64, 256, 3, padding=1), nn.PixelShuffle(2)]
    first, last = nn.Conv2d(3, 64, 3, padding=1), nn.Sequential(*up, nn.Conv2d(64, 3, 3, padding=1))
    model = nn.ModuleList([first, body, last]).cuda()
    large = torch.rand(16, 3, 192, 192)
    line = torch.exp(-((torch.arange(11) - 5.0) ** 2) / (2 * 1.5**2))
    window = (line[:, None] * line[None] / line.sum() ** 2).expand(3, 1, 11, 11).contiguous().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def blurred(x: Tensor) -> Tensor:
        return functional.conv2d(x, window, padding=5, groups=3)

    def likeness(a: Tensor, b: Tensor) -> Tensor:
        one, other = blurred(a), blurred(b)
        spread = blurred(a * a) - one**2 + blurred(b * b) - other**2
        both = blurred(a * b) - one * other
        found = (2 * one * other + 1e-4) * (2 * both + 9e-4) / ((one**2 + other**2 + 1e-4) * (spread + 9e-4))
        return found.mean()

    def step() -> float:
        wanted = large.cuda()
        small = functional.interpolate(wanted, scale_factor=0.25, mode="bicubic", antialias=True).clamp(0, 1)
        features = first(small)
        made = last(features + body(features))
        made = made + functional.interpolate(small, scale_factor=4, mode="bilinear", align_corners=False)
        loss = functional.l1_loss(made, wanted) + 0.1 * (1 - likeness(made, wanted))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            return -10 * math.log10(max(functional.mse_loss(made.clamp(0, 1), wanted).item(), 1e-10))

    return step


class _Basic(nn.Module):
    """A block of ResNet-18."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(into, out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(True),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        less = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.beside = less if stride > 1 or into != out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.layers(x) + self.beside(x))


def resnet(classes: int) -> nn.Sequential:
    """Returns a ResNet-18, on the CPU."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    for into, out in ((64, 64), (64, 128), (128, 256), (256, 512)):
        layers += [_Basic(into, out, 1 if into == out else 2), _Basic(out, out, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


def pairs() -> Step:
    """CLIP: ResNet-18 for images, a causal transformer for texts, and a contrastive loss over 128 pairs."""
    images_of, layer = resnet(256), nn.TransformerEncoderLayer(256, 4, 1024, 0.0, "gelu", batch_first=True)
    words_of, table = nn.TransformerEncoder(layer, 6), nn.Embedding(20_000, 256)
    norm, turn = nn.LayerNorm(256), nn.Linear(256, 256, bias=False)
    model = nn.ModuleList([images_of, words_of, table, norm, turn]).cuda()
    places = nn.Parameter(torch.randn(32, 256, device="cuda") * 0.01)
    scale = nn.Parameter(torch.tensor(math.log(1 / 0.07), device="cuda"))
    future = nn.Transformer.generate_square_subsequent_mask(32).cuda()
    images, texts = torch.randn(128, 3, 128, 128).cuda(), torch.randint(0, 20_000, (128, 32)).cuda()
    decayed = [each for each in model.parameters() if each.ndim > 1]
    others = [each for each in model.parameters() if each.ndim < 2] + [places, scale]
    groups = [{"params": decayed, "weight_decay": 0.2}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=5e-4, betas=(0.9, 0.98), eps=1e-6)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda at: min(1.0, (at + 1) / 500))

    def step() -> tuple[float, float]:
        with torch.autocast("cuda", torch.bfloat16):
            seen = functional.normalize(images_of(images), dim=-1)
            read = norm(words_of(table(texts) + places, mask=future, is_causal=True))
            read = functional.normalize(turn(read[torch.arange(128, device="cuda"), texts.argmax(-1)]), dim=-1)
            scores = scale.exp() * seen @ read.t()
            same = torch.arange(len(scores), device=scores.device)
            loss = (functional.cross_entropy(scores, same) + functional.cross_entropy(scores.t(), same)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            scale.clamp_(0, math.log(100))
        return loss.item(), (scores.argmax(1) == same).float().mean().item()

    return step


class _Ahead:
    """Uploads and normalizes the next batch on a stream of its own, as examples of NVIDIA do."""

    def __init__(self, batches: list[tuple[Tensor, Tensor]]) -> None:
        self.batches, self.stream = itertools.cycle(batches), torch.cuda.Stream()
        self.mean = torch.tensor([123.675, 116.28, 103.53]).cuda().view(1, 3, 1, 1)
        self.deviation = torch.tensor([58.395, 57.12, 57.375]).cuda().view(1, 3, 1, 1)
        self.preload()

    def preload(self) -> None:
        images, labels = next(self.batches)
        with torch.cuda.stream(self.stream):
            self.labels = labels.cuda(non_blocking=True)
            self.images = images.cuda(non_blocking=True).float().sub_(self.mean).div_(self.deviation)

    def next(self) -> tuple[Tensor, Tensor]:
        torch.cuda.current_stream().wait_stream(self.stream)
        images, labels = self.images, self.labels
        for each in (images, labels):
            each.record_stream(torch.cuda.current_stream())
        self.preload()
        return images, labels


def prefetched() -> Step:
    """ResNet-18 on 64 images of 224 x 224 in float16 and channels_last, whose batches come from a second stream."""
    model = resnet(1000).cuda().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    batches = [
        (
            torch.randint(0, 256, (64, 3, 224, 224), dtype=torch.uint8).pin_memory(),
            torch.randint(0, 1000, (64,)).pin_memory(),
        )
        for _ in range(4)
    ]
    ahead, scaler = _Ahead(batches), torch.amp.GradScaler("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)

    def step() -> None:
        images, labels = ahead.next()
        with torch.autocast("cuda", torch.float16):
            loss = functional.cross_entropy(model(images.contiguous(memory_format=torch.channels_last)), labels)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


VISION: dict[str, Callable[[], Step]] = {
    "windows": windows,
    "squeezes": squeezes,
    "enlarges": enlarges,
    "pairs": pairs,
    "prefetched": prefetched,
}
