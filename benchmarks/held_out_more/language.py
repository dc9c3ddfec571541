"""Models of words and of sound in training: masked, adapted, recurrent, scanned."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from benchmarks.held_out import Step


class _Encoder(nn.Module):
    """A layer of RoBERTa, which normalizes after each half."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out, self.up, self.down = nn.Linear(width, width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.one, self.other, self.dropout = nn.LayerNorm(width), nn.LayerNorm(width), nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            layer(x).view(batch, length, self.heads, -1).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        found = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.1 * self.training)
        x = self.one(x + self.dropout(self.out(found.transpose(1, 2).reshape(batch, length, width))))
        return self.other(x + self.dropout(self.down(functional.gelu(self.up(x)))))  # type: ignore[no-any-return]


def fills() -> Step:
    """RoBERTa of six layers: words masked on the CPU, batches of many lengths, two of them accumulated, in float16."""
    table, places, norm = nn.Embedding(30_000, 512, padding_idx=1), nn.Embedding(130, 512), nn.LayerNorm(512)
    layers = nn.ModuleList([_Encoder(512, 8) for _ in range(6)])
    head = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 30_000))
    head[3].weight = table.weight
    model = nn.ModuleList([table, places, norm, layers, head]).cuda()
    texts = [[torch.randint(4, 30_000, (n,)) for n in torch.randint(20, 129, (16,)).tolist()] for _ in range(8)]
    batches = itertools.cycle([nn.utils.rnn.pad_sequence(each, True, 1) for each in texts])
    optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01), torch.amp.GradScaler("cuda")
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=1000)

    def masked(words: Tensor) -> tuple[Tensor, Tensor]:
        chosen = torch.bernoulli(torch.full(words.shape, 0.15).masked_fill_(words == 1, 0.0)).bool()
        labels, words = torch.where(chosen, words, -100), words.clone()
        replaced = torch.bernoulli(torch.full(words.shape, 0.8)).bool() & chosen
        words[replaced] = 3
        drawn = torch.bernoulli(torch.full(words.shape, 0.5)).bool() & chosen & ~replaced
        words[drawn] = torch.randint(4, 30_000, words.shape)[drawn]
        return words, labels

    def step() -> float:
        total = 0.0
        for _ in range(2):
            words, labels = (each.to("cuda") for each in masked(next(batches)))
            with torch.autocast("cuda", torch.float16):
                seen = (words != 1)[:, None, None, :]
                x = norm(table(words) + places(torch.arange(words.shape[1], device="cuda")))
                x = functional.dropout(x, 0.1)
                for layer in layers:
                    x = layer(x, seen)
                loss = functional.cross_entropy(head(x).view(-1, 30_000), labels.view(-1)) / 2
            scaler.scale(loss).backward()
            total += loss.item()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        optimizer.zero_grad()
        return total

    return step


class _Root(nn.Module):
    """Normalizes by the root of the mean square, in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class _Adapted(nn.Module):
    """A frozen layer, and beside it two thin ones in float32 that learn."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base, self.dropout = base.to(torch.bfloat16).requires_grad_(False), nn.Dropout(0.05)
        self.into, self.out = nn.Linear(base.in_features, rank, False), nn.Linear(rank, base.out_features, False)
        nn.init.zeros_(self.out.weight)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base(x) + 2.0 * self.out(self.into(self.dropout(x.float()))).to(x.dtype)
        return found


class _Llama(nn.Module):
    """A layer of Llama with 16 heads and 4 of keys, whose queries and values are adapted."""

    def __init__(self, width: int) -> None:
        super().__init__()

        def frozen(into: int, out: int) -> nn.Linear:
            return nn.Linear(into, out, bias=False).to(torch.bfloat16).requires_grad_(False)

        self.before, self.after = (_Root(width).to(torch.bfloat16).requires_grad_(False) for _ in range(2))
        self.query, self.value = (_Adapted(nn.Linear(width, out, bias=False), 8) for out in (width, width // 4))
        self.key, self.out = frozen(width, width // 4), frozen(width, width)
        self.gate, self.up, self.down = frozen(width, 2816), frozen(width, 2816), frozen(2816, width)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        batch, length, width = x.shape

        def turned(each: Tensor) -> Tensor:
            one, other = each.chunk(2, dim=-1)
            return each * cosine + torch.cat([-other, one], dim=-1) * sine

        normed = self.before(x)
        q, k, v = (
            layer(normed).view(batch, length, -1, 64).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        k, v = turned(k).repeat_interleave(4, dim=1), v.repeat_interleave(4, dim=1)
        found = functional.scaled_dot_product_attention(turned(q), k, v, is_causal=True)
        x = x + self.out(found.transpose(1, 2).reshape(batch, length, width))
        normed = self.after(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))  # type: ignore[no-any-return]


def adapts() -> Step:
    """LoRA on a Llama of six layers in bfloat16, with checkpoints of activations and prompts left out of the loss."""
    table, layers = nn.Embedding(32_000, 1024).to(torch.bfloat16), nn.ModuleList([_Llama(1024) for _ in range(6)])
    norm, head = _Root(1024).to(torch.bfloat16), nn.Linear(1024, 32_000, bias=False).to(torch.bfloat16)
    for each in (table, norm, head):
        each.requires_grad_(False)
    model = nn.ModuleList([table, layers, norm, head]).cuda()
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-4)
    words = torch.randint(0, 32_000, (4, 512))
    labels = words.masked_fill(torch.arange(512)[None] < torch.randint(20, 200, (4, 1)), -100)
    angles = torch.arange(512)[:, None] * 10_000.0 ** (-torch.arange(0, 64, 2) / 64)
    cosine, sine = (each(torch.cat([angles, angles], 1)).to(torch.bfloat16).cuda() for each in (torch.cos, torch.sin))

    def step() -> float:
        x = table(words.cuda()).requires_grad_(True)
        for layer in layers:
            x = checkpoint(layer, x, cosine, sine, use_reentrant=False)
        scores = head(norm(x)).float()
        loss = functional.cross_entropy(scores[:, :-1].reshape(-1, 32_000), labels.cuda()[:, 1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 0.3)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def remembers() -> Step:
    """A language model of three LSTM layers: states kept from step to step, tied weights, plain SGD by hand."""
    table, layers, head = nn.Embedding(10_000, 400), nn.LSTM(400, 400, 3, dropout=0.3), nn.Linear(400, 10_000)
    head.weight = table.weight
    model = nn.ModuleList([table, layers, head]).cuda()
    text = torch.randint(0, 10_000, (35 * 100 + 1, 40)).cuda()
    begins = itertools.cycle(range(0, 35 * 100, 35))
    state = (torch.zeros(3, 40, 400, device="cuda"), torch.zeros(3, 40, 400, device="cuda"))

    def step() -> float:
        nonlocal state
        begin = next(begins)
        model.zero_grad()
        state = (state[0].detach(), state[1].detach())
        found, state = layers(functional.dropout(table(text[begin : begin + 35]), 0.4), state)
        logs = functional.log_softmax(head(functional.dropout(found, 0.4)).view(-1, 10_000), dim=1)
        loss = functional.nll_loss(logs, text[begin + 1 : begin + 36].view(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for each in model.parameters():
            if each.grad is not None:
                each.data.add_(each.grad, alpha=-5.0)
        return math.exp(min(loss.item(), 50.0))

    return step


class _Selective(nn.Module):
    """A layer of Mamba, whose scan is a loop over positions."""

    def __init__(self, width: int, inner: int, states: int) -> None:
        super().__init__()
        self.norm, self.states = nn.RMSNorm(width), states
        self.into, self.out = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)
        self.near = nn.Conv1d(inner, inner, 4, padding=3, groups=inner)
        self.chosen, self.widened = nn.Linear(inner, 16 + 2 * states, bias=False), nn.Linear(16, inner)
        self.rates = nn.Parameter(torch.arange(1, states + 1).float().log().repeat(inner, 1))
        self.skip = nn.Parameter(torch.ones(inner))

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        inner, gate = self.into(self.norm(x)).chunk(2, dim=-1)
        inner = functional.silu(self.near(inner.transpose(1, 2))[..., :length].transpose(1, 2))
        width, given, read = self.chosen(inner).split([16, self.states, self.states], dim=-1)
        width = functional.softplus(self.widened(width))
        kept = torch.exp(width.unsqueeze(-1) * -self.rates.exp())
        added = torch.einsum("bld,bln,bld->bldn", width, given, inner)
        state, found = torch.zeros_like(added[:, 0]), []
        for at in range(length):
            state = kept[:, at] * state + added[:, at]
            found.append(torch.einsum("bdn,bn->bd", state, read[:, at]))
        scanned = torch.stack(found, dim=1) + inner * self.skip
        return x + self.out(scanned * functional.silu(gate))  # type: ignore[no-any-return]


def scans() -> Step:
    """Two layers of Mamba in plain torch, on bytes."""
    layers = [_Selective(256, 512, 16) for _ in range(2)]
    model = nn.Sequential(nn.Embedding(256, 256), *layers, nn.RMSNorm(256), nn.Linear(256, 256)).cuda()
    text = torch.randint(0, 256, (8, 49)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)

    def step() -> None:
        loss = functional.cross_entropy(model(text[:, :-1]).transpose(1, 2), text[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


class _Gated(nn.Module):
    """A layer of WaveNet: dilated, gated, with a mel spectrogram beside, and two results."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.wide = nn.Conv1d(64, 128, 3, padding=dilation, dilation=dilation)
        self.beside, self.out = nn.Conv1d(80, 128, 1), nn.Conv1d(64, 128, 1)

    def forward(self, x: Tensor, mel: Tensor) -> tuple[Tensor, Tensor]:
        one, other = (self.wide(x) + self.beside(mel)).chunk(2, dim=1)
        rest, skipped = self.out(torch.tanh(one) * torch.sigmoid(other)).chunk(2, dim=1)
        return (x + rest) * math.sqrt(0.5), skipped


def vocodes() -> Step:
    """A vocoder: noise becomes sound by WaveNet, and is judged by its spectra at three resolutions."""
    first, last = nn.Conv1d(1, 64, 1), nn.Sequential(nn.ReLU(), nn.Conv1d(64, 64, 1), nn.ReLU(), nn.Conv1d(64, 1, 1))
    layers = nn.ModuleList([_Gated(2 ** (at % 5)) for at in range(10)])
    up = nn.Sequential(*(nn.ConvTranspose1d(80, 80, 8, 4, 2) for _ in range(4)))
    model = nn.ModuleList([first, last, layers, up]).cuda()
    mels, sounds = torch.randn(8, 80, 32), torch.randn(8, 8192) * 0.1
    windows = {size: torch.hann_window(size).cuda() for size in (512, 1024, 2048)}
    optimizer = torch.optim.RAdam(model.parameters(), lr=1e-4)

    def spectrum(sound: Tensor, size: int) -> Tensor:
        found = torch.stft(sound, size, size // 4, window=windows[size], return_complex=True)
        return torch.sqrt(torch.clamp(found.real**2 + found.imag**2, min=1e-7))

    def step() -> tuple[float, float]:
        mel, wanted = up(mels.cuda()), sounds.cuda()
        x = first(torch.randn(8, 1, 8192, device="cuda"))
        total: Tensor | float = 0.0
        for layer in layers:
            x, skipped = layer(x, mel)
            total = total + skipped
        made = last(total * math.sqrt(0.1)).squeeze(1)
        shape = size = torch.zeros((), device="cuda")
        for each in windows:
            its, real = spectrum(made, each), spectrum(wanted, each)
            shape = shape + torch.norm(real - its, p="fro") / torch.norm(real, p="fro")
            size = size + functional.l1_loss(its.log(), real.log())
        optimizer.zero_grad()
        ((shape + size) / 3).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        return shape.item(), size.item()

    return step


LANGUAGE: dict[str, Callable[[], Step]] = {
    "fills": fills,
    "adapts": adapts,
    "remembers": remembers,
    "scans": scans,
    "vocodes": vocodes,
}
