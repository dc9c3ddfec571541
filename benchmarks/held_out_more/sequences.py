"""Programs on words, sounds and moves."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from benchmarks.held_out import Step


def attends() -> Step:
    """GRU to GRU: packed sentences of many lengths, and a decoder that attends, word by word."""
    table, names = nn.Embedding(3000, 128), nn.Embedding(3000, 128)
    reads, writes = nn.GRU(128, 256, batch_first=True), nn.GRUCell(128 + 256, 256)
    query, key, score, head = nn.Linear(256, 128), nn.Linear(256, 128), nn.Linear(128, 1), nn.Linear(512, 3000)
    model = nn.ModuleList([table, names, reads, writes, query, key, score, head]).cuda()
    lengths = torch.randint(8, 25, (32,)).sort(descending=True).values
    source, target = torch.randint(1, 3000, (32, 24)).cuda(), torch.randint(1, 3000, (32, 21)).cuda()
    padding = (torch.arange(24)[None] >= lengths[:, None]).cuda()
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> float:
        packed = pack_padded_sequence(table(source), lengths, batch_first=True)
        states, last = reads(packed)
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=24)
        keys, state, loss = key(states), last[0], torch.zeros((), device="cuda")
        for at in range(20):
            weights = score(torch.tanh(query(state)[:, None] + keys)).squeeze(-1)
            weights = weights.masked_fill(padding, -math.inf).softmax(-1)
            seen = torch.bmm(weights[:, None], states).squeeze(1)
            state = writes(torch.cat([names(target[:, at]), seen], -1), state)
            loss = loss + functional.cross_entropy(head(torch.cat([state, seen], -1)), target[:, at + 1])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item() / 20

    return step


class _Causal(nn.Module):
    def __init__(self, into: int, out: int, dilation: int) -> None:
        super().__init__()
        self.reach = 2 * dilation
        self.one = weight_norm(nn.Conv1d(into, out, 3, padding=self.reach, dilation=dilation))
        self.other = weight_norm(nn.Conv1d(out, out, 3, padding=self.reach, dilation=dilation))
        self.beside = nn.Conv1d(into, out, 1) if into != out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        found = functional.dropout(functional.relu(self.one(x)[..., : -self.reach]), 0.2, self.training)
        found = functional.dropout(functional.relu(self.other(found)[..., : -self.reach]), 0.2, self.training)
        return functional.relu(found + self.beside(x))


def causal() -> Step:
    """A temporal convolutional network with normalised weights, for the next values of a series."""
    layers = [_Causal(8 if not at else 64, 64, 2**at) for at in range(5)]
    model = nn.Sequential(*layers, nn.Conv1d(64, 8, 1)).cuda()
    series = torch.randn(32, 8, 257).cuda()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        functional.huber_loss(model(series[..., :-1]), series[..., 1:]).backward()
        optimizer.step()

    return step


def reviews() -> Step:
    """A classifier of padded texts: torch's TransformerEncoder in training, and once more for the accuracy."""
    layer = nn.TransformerEncoderLayer(128, 4, 256, activation="gelu", batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    table, head = nn.Embedding(8000, 128, padding_idx=0), nn.Linear(128, 2)
    model = nn.ModuleList([encoder, table, head]).cuda()
    angles = torch.arange(96)[:, None] * torch.exp(torch.arange(0, 128, 2) * (-math.log(10000.0) / 128))
    places = torch.stack([angles.sin(), angles.cos()], -1).flatten(1).cuda()
    lengths = torch.randint(20, 97, (32,))
    words = torch.where(torch.arange(96)[None] < lengths[:, None], torch.randint(1, 8000, (32, 96)), 0)
    labels = torch.randint(0, 2, (32,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def scores(x: Tensor) -> Tensor:
        padding = x == 0
        found = encoder(table(x) * math.sqrt(128) + places, src_key_padding_mask=padding)
        kept = (~padding).unsqueeze(-1).float()
        out: Tensor = head((found * kept).sum(1) / kept.sum(1).clamp(min=1))
        return out

    def step() -> float:
        x, y = words.to("cuda"), labels.to("cuda")
        model.train()
        optimizer.zero_grad()
        functional.cross_entropy(scores(x), y).backward()
        optimizer.step()
        model.eval()
        with torch.inference_mode():
            return (scores(x).argmax(-1) == y).float().mean().item()

    return step


def experts() -> Step:
    """A layer of eight experts: each takes its tokens by index, and adds its results up again."""
    router = nn.Linear(256, 8, bias=False)
    each = nn.ModuleList(nn.Sequential(nn.Linear(256, 512), nn.SiLU(), nn.Linear(512, 256)) for _ in range(8))
    model = nn.ModuleList([router, each]).cuda()
    tokens, wanted = torch.randn(2048, 256).cuda(), torch.randn(2048, 256).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        chances = router(tokens).softmax(-1)
        weights, chosen = torch.topk(chances, 2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        found = torch.zeros_like(tokens)
        for at, expert in enumerate(each):
            rows, nth = torch.where(chosen == at)
            found.index_add_(0, rows, expert(tokens[rows]) * weights[rows, nth, None])
        shares = functional.one_hot(chosen, 8).float().mean((0, 1))
        loss = functional.mse_loss(found, wanted) + 0.01 * 8 * (shares * chances.mean(0)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


class _Cached(nn.Module):
    """A layer of GPT-2 that keeps the keys and values of earlier words."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.keys, self.values = heads, torch.empty(0), torch.empty(0)
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projected, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, *, first: bool) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            each.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for each in self.projected(self.before(x)).split(width, dim=2)
        )
        self.keys = k if first else torch.cat([self.keys, k], dim=2)
        self.values = v if first else torch.cat([self.values, v], dim=2)
        found = functional.scaled_dot_product_attention(q, self.keys, self.values, is_causal=first)
        x = x + self.out(found.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.after(x)), approximate="tanh"))  # type: ignore[no-any-return]


def generates() -> Step:
    """Sixteen words drawn one by one from a GPT-2 of six layers in bfloat16, until one ends the text."""
    table, places = nn.Embedding(50257, 384), nn.Embedding(256, 384)
    layers, norm = nn.ModuleList(_Cached(384, 6) for _ in range(6)), nn.LayerNorm(384)
    nn.ModuleList([table, places, layers, norm]).cuda().to(torch.bfloat16).eval()
    prompt = torch.randint(0, 50257, (4, 32)).cuda()

    @torch.no_grad()
    def step() -> Tensor:
        text, at = prompt, 0
        for nth in range(16):
            words = text[:, at:]
            x = table(words) + places(torch.arange(at, text.shape[1], device="cuda"))
            for layer in layers:
                x = layer(x, first=not nth)
            scores = (norm(x[:, -1]) @ table.weight.T).float() / 0.8
            least = torch.topk(scores, 40).values[:, -1:]
            drawn = torch.multinomial(scores.masked_fill(scores < least, -math.inf).softmax(-1), 1)
            at, text = text.shape[1], torch.cat([text, drawn], dim=1)
            if (drawn == 50256).all():
                break
        return text

    return step


def hears() -> Step:
    """Speech: spectrograms on the mel scale, convolutions, a GRU in both directions, and CTC."""
    window = torch.hann_window(400).cuda()
    mels = torch.rand(201, 64).cuda()
    convolved = nn.Sequential(
        nn.Conv2d(1, 32, 3, (2, 2), 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, (2, 1), 1), nn.ReLU()
    )
    layers, head = nn.GRU(32 * 16, 128, 2, batch_first=True, bidirectional=True), nn.Linear(256, 29)
    model = nn.ModuleList([convolved, layers, head]).cuda()
    sounds, letters = torch.randn(8, 16000).cuda(), torch.randint(1, 29, (8, 12)).cuda()
    lengths, spelled = torch.full((8,), 51), torch.randint(6, 13, (8,))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)

    def step() -> None:
        found = torch.stft(sounds, 400, 160, window=window, return_complex=True).abs().square()
        found = torch.log(found.transpose(1, 2) @ mels + 1e-6)
        found = (found - found.mean((1, 2), keepdim=True)) / found.std((1, 2), keepdim=True)
        found = convolved(found.transpose(1, 2).unsqueeze(1))
        states, _ = layers(found.flatten(1, 2).transpose(1, 2))
        logs = head(states).log_softmax(-1).transpose(0, 1)
        loss = functional.ctc_loss(logs, letters, lengths, spelled, zero_infinity=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def replays() -> Step:
    """Deep Q-learning with a buffer of moves on the GPU, and a target network."""
    net = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4)).cuda()
    target = copy.deepcopy(net)
    size = 50_000
    states, following = torch.randn(size, 8, device="cuda"), torch.randn(size, 8, device="cuda")
    actions, rewards = torch.zeros(size, dtype=torch.long, device="cuda"), torch.randn(size, device="cuda")
    ended = torch.zeros(size, dtype=torch.bool, device="cuda")
    optimizer, at, seen = torch.optim.Adam(net.parameters(), lr=1e-3), 0, torch.randn(8)

    def step() -> None:
        nonlocal at, seen
        for _ in range(4):
            with torch.no_grad():
                action = net(seen.unsqueeze(0).to("cuda")).argmax(1).item()
            after = torch.roll(seen, 1)
            states[at], following[at] = seen.to("cuda"), after.to("cuda")
            actions[at], rewards[at], ended[at] = action, 1.0, at % 200 == 0
            at, seen = (at + 1) % size, after
        drawn = torch.randint(0, size, (128,), device="cuda")
        values = net(states[drawn]).gather(1, actions[drawn].unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            best = target(following[drawn]).max(1).values
            wanted = rewards[drawn] + 0.99 * best * ~ended[drawn]
        loss = functional.smooth_l1_loss(values, wanted)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(net.parameters(), 100)
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), net.parameters(), strict=True):
                slow.lerp_(fast, 0.005)

    return step


def clipped() -> Step:
    """PPO: 32 moves of 64 games at once, advantages added up backwards, and two epochs of four batches."""
    body = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
    policy, worth = nn.Linear(64, 6), nn.Linear(64, 1)
    model = nn.ModuleList([body, policy, worth]).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, eps=1e-5)

    def judged(states: Tensor) -> tuple[torch.distributions.Categorical, Tensor]:
        found = body(states)
        return torch.distributions.Categorical(logits=policy(found)), worth(found).squeeze(-1)

    def step() -> None:
        states, actions = torch.zeros(32, 64, 16, device="cuda"), torch.zeros(32, 64, dtype=torch.long, device="cuda")
        logs, rewards, values = (torch.zeros(32, 64, device="cuda") for _ in range(3))
        state = torch.randn(64, 16, device="cuda")
        for at in range(32):
            with torch.no_grad():
                chances, value = judged(state)
                action = chances.sample()
            states[at], actions[at], logs[at], values[at] = state, action, chances.log_prob(action), value
            rewards[at] = (action == 0).float()
            state = torch.tanh(state + 0.1 * torch.randn_like(state))
        with torch.no_grad():
            after, last = judged(state)[1], torch.zeros(64, device="cuda")
            gains = torch.zeros_like(rewards)
            for at in reversed(range(32)):
                error = rewards[at] + 0.99 * (values[at + 1] if at < 31 else after) - values[at]
                gains[at] = last = error + 0.99 * 0.95 * last
        returns = (gains + values).flatten()
        rows, olds, picks, old = states.flatten(0, 1), logs.flatten(), actions.flatten(), gains.flatten()
        for _ in range(2):
            for batch in torch.randperm(2048, device="cuda").split(512):
                chances, value = judged(rows[batch])
                ratio = (chances.log_prob(picks[batch]) - olds[batch]).exp()
                gain = (old[batch] - old[batch].mean()) / (old[batch].std() + 1e-8)
                loss = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
                loss = loss + 0.5 * functional.mse_loss(value, returns[batch]) - 0.01 * chances.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()

    return step


SEQUENCES: dict[str, Callable[[], Step]] = {
    "attends": attends,
    "causal": causal,
    "reviews": reviews,
    "experts": experts,
    "generates": generates,
    "hears": hears,
    "replays": replays,
    "clipped": clipped,
}
