"""Programs drawn at random: state, a function that works on it, and calls with changes between them, as source text."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

PRELUDE = """
import contextlib
import random
import warnings

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
random.seed(0)
W = torch.randn(4, 4, device=D, requires_grad=True)
U = torch.randn(4, 4, device=D)
V = torch.randn(4, device=D)
derived = W * 0.5
state, scratch = torch.zeros(4, 4, device=D), torch.zeros(4, 4, device=D)
row, count = state[1], torch.zeros((), device=D)
settings = {"scale": 2.0, "flag": True, "n": 0, "boom": False}
cache, memo, kept, rows = [], {}, [], [torch.ones(4, device=D), torch.zeros(4, device=D)]
gen = torch.Generator(D)
gen.manual_seed(0)
pool = torch.arange(400.0, device=D).reshape(10, 40) / 100


class Holder:
    kind = "class"

    def __init__(self):
        self.t, self.factor, self.last = torch.ones(4, device=D), 1.5, None


holder = Holder()


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(w)
        ctx.factor = settings["scale"]
        return x * w[0]

    @staticmethod
    def backward(ctx, grad):
        (w,) = ctx.saved_tensors
        return grad * w[0] * ctx.factor, None


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.norm, self.drop = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.emb = nn.Embedding(4, 4)
        self.register_buffer("mean", torch.zeros(4))
        self.calls, self.last = 0, None

    def forward(self, x):
        return self.drop(self.norm(self.lin(x)))


model = Model().to(D)


def data(rows, seed, columns=4):
    made = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    return made.to(D)


def indices(rows, seed):
    return torch.randint(0, 4, (rows,), generator=torch.Generator().manual_seed(seed)).to(D)


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [each for item in value for each in tensors(item)] if isinstance(value, (list, tuple)) else []


def total(value):
    losses = [each.float().square().sum() for each in tensors(value) if each.requires_grad]
    return sum(losses[1:], losses[0]) if losses else torch.zeros((), requires_grad=True)
"""

OPTIMIZERS = (
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)",
    "optimizer = torch.optim.SGD([*model.parameters(), W], lr=0.1)",
    "optimizer = torch.optim.AdamW([*model.parameters(), W], lr=0.1, capturable=D != 'cpu')",
)

# {M} stands for a matrix that there is, of as many rows as the call's; {W} for one of 4 by 4, {V} for a vector of 4,
# {S} for a scalar; {o} for the new name.
MATRICES = (
    "{o} = {M} @ {W}",
    "{o} = {M}.relu()",
    "{o} = {M}.sin() + {V}",
    "{o} = {M} * {S}",
    "{o} = {M} - {M}",
    "{o} = {M}.tanh()",
    "{o} = {M}.softmax(1)",
    "{o} = torch.cat([{M}[:, :2], {M}[:, 2:]], 1)",
    "{o} = torch.cat([{M}[:1], {M}[1:]])",
    "{o} = torch.stack([{M}, {M}]).sum(0)",
    "{o} = torch.stack([{M}, {M}], 2)[..., 1]",
    "{o} = {M}.t().contiguous().t()",
    "{o} = {M}[:]",
    "{o} = {M}.view(-1, 4)",
    "{o} = {M}.flip(0)",
    "{o} = {M}.detach()",
    "{o} = {M}.clone()",
    "{o} = {M}.contiguous()",
    "{o} = {M}.split(2, 1)[0].repeat(1, 2)",
    "{o} = torch.where({M} > 0, {M}, {M})",
    "{o} = {M}.masked_fill({M} < 0, settings['scale'])",
    "{o} = {M} * settings['scale']",
    "{o} = {M} * holder.factor + holder.t",
    "{o} = {M} + rows[0] - rows[-1]",
    "{o} = F.layer_norm({M}, (4,))",
    "{o} = F.dropout({M}, 0.5)",
    "{o} = F.dropout({M}, 0.3, training=model.training)",
    "{o} = {M} + torch.rand_like({M})",
    "{o} = {M} + torch.randn({M}.shape, generator=gen, device=D)",
    "{o} = model({M})",
    "{o} = model.lin({M})",
    "{o} = model.norm({M})",
    "{o} = model.emb(i)",
    "{o} = F.embedding(i, {W})",
    "{o} = {W}[i]",
    "{o} = Scaled.apply({M}, {W})",
    "{o} = torch.addmm({V}, {M}, {W})",
    "{o} = torch.add({M}, {M}, out=torch.empty_like({M}))",
    "{o} = {M} + torch.arange(4, device=D) * k",
    "{o} = {M} + torch.full((4,), settings['scale'], device=D)",
    "{o} = {V}.expand({M}.shape)",
    "{o} = {M}.cumsum(0)",
    "{o} = {M}.roll(1, 0)",
    "{o} = F.scaled_dot_product_attention({M}[None], {M}[None], {M}[None])[0]",
    "{o} = torch.einsum('bi,ij->bj', {M}, {W})",
    "{o} = {M}.double().float()",
    "{o} = {M} + count",
)
VECTORS = (
    "{o} = {M}.sum(0)",
    "{o} = {M}.mean(0)",
    "{o} = {W}[1]",
    "{o} = {W}.diagonal()",
    "{o} = {V}.unsqueeze(0)[0]",
    "{o} = {M}.amax(0)",
    "{o} = state[2]",
    "{o} = {M}[0]",
)
SQUARES = ("{o} = {W} @ {W}", "{o} = {W}.t()", "{o} = {M}.t() @ {M}", "{o} = {W} * 0.5", "{o} = {W}[:]")
SCALARS = ("{o} = {M}.sum()", "{o} = {M}.mean()", "{o} = {V}[0]", "{o} = ({M} * {M}).sum()", "{o} = {W}[0, 0]")
WRITES = (
    "{M}.mul_(2)",
    "{M}.add_({M})",
    "{M}[:, 0] = 1.0",
    "{M}[0] = {V}",
    "{M}.zero_()",
    "{M}[:, 1:].add_(1)",
    "{M}.copy_({M})",
    "{M}.clamp_(-1, 1)",
    "{M}.index_add_(0, torch.zeros(1, dtype=torch.long, device=D), {V}[None])",
    "{M}.dropout_ if False else F.relu_({M})",
    "torch.mul({M}, 2, out={M})",
    "{V}.add_(1)",
    "{W}.mul_(0.5)",
    "{M}.normal_(generator=gen)",
    "{M}.uniform_()",
    "{M}.detach().add_(1)",
    "{M}.data.mul_(0.5)",
)
EFFECTS = (
    "state.add_({W}.detach())",
    "state[0] = {V}.detach()",
    "row.add_({V}.detach())",
    "state.copy_({W}.detach())",
    "torch.mm({W}.detach(), {W}.detach(), out=scratch)",
    "count.add_(1)",
    "model.mean.lerp_({V}.detach(), 0.1)",
    "rows[0].add_(1)",
    "memo.setdefault('k', {V}.detach().clone())",
    "cache.append({V}.detach()) if len(cache) < 2 else None",
    "gen.manual_seed(3)",
    "holder.t.add_(1)",
    "warnings.warn('said by the program')",
)
PYTHON_EFFECTS = (
    "settings['n'] += 1",
    "model.calls += 1",
    "cache.append({M}.detach())",
    "holder.t = {V}.detach() * 0.5",
    "holder.last = {M}",
    "memo['last'] = {V}.detach()",
    "rows[0] = {V}.detach()",
    "globals().update(U=U * 0.5)",
    "model.mean = model.mean * 0.9",
    "holder.factor = random.random()",
    "{o} = {M} * random.random()",
    "{o} = {M} * {S}.item()",
    "{o} = {M} + torch.tensor([1.0, 2.0, 3.0, 4.0], device=D)",
    "print('printed')",
    "{M}.register_hook(lambda grad: grad * 2)",
    "model.train(not model.training)",
    "{M}.requires_grad_()",
    "W.requires_grad_(not W.requires_grad)",
    "{o} = {M}[{M}[:, 0] > -9]",
    "{o} = {M} + torch.rand(1).to(D)",
    "kept.append({M})",
    "torch.manual_seed(5)",
)
TRAINING = (
    "model.zero_grad()",
    "optimizer.zero_grad()",
    "optimizer.zero_grad(set_to_none=False)",
    "{S}.backward()",
    "({M} @ W).sum().backward()",
    "model({M}.detach()).square().sum().backward()",
    "optimizer.step()",
    "optimizer.zero_grad(); model({M}.detach()).square().mean().backward(); optimizer.step()",
    "{o} = torch.autograd.grad(({M} * W.sum()).square().sum(), W)[0] + {M}.sum()",
    "nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
)
BLOCKS = (
    "with torch.no_grad():",
    "with torch.inference_mode():",
    "with torch.enable_grad():",
    "with torch.autocast(D, dtype=torch.bfloat16):",
    "if settings['flag']:",
    "if model.training:",
    "if k > 1:",
    "if x.shape[0] > 2:",
    "if torch.is_grad_enabled():",
    "if 'k' in memo:",
    "if len(cache) > 1:",
    "if x.requires_grad:",
    "for _ in range(k):",
    "with contextlib.suppress(ValueError):",
)
RAISES = ("if settings['boom']: raise ValueError('boom')", "if k == 3: raise ValueError('three')")

CHANGES = (
    "settings['scale'] = 3.0",
    "settings['flag'] = not settings['flag']",
    "settings['boom'] = not settings['boom']",
    "state.add_(1)",
    "state = torch.ones(4, 4, device=D)",
    "U = U * 2",
    "U.mul_(0.5)",
    "W = torch.randn(4, 4, device=D, requires_grad=True)",
    "with torch.no_grad(): W.mul_(0.5)",
    "W.data = data(4, 9)",
    "U.data = data(4, 9).t()",
    "U.resize_(4, 4)",
    "W.grad = None",
    "derived = W * 0.25",
    "model.eval()",
    "model.train()",
    "model.lin.weight.requires_grad_(not model.lin.weight.requires_grad)",
    "model.lin = nn.Linear(4, 4).to(D)",
    "model.zero_grad()",
    "model.zero_grad(set_to_none=False)",
    "model.norm.momentum = 0.5",
    "model.drop.p = 0.2",
    "model.lin.register_forward_hook(lambda module, given, result: result * 2)",
    "model.lin.weight.register_hook(lambda grad: grad * 2)",
    "model.double().float()",
    "optimizer.param_groups[0]['lr'] = 0.02",
    "torch.manual_seed(3)",
    "gen.manual_seed(1)",
    "gen = torch.Generator(D)",
    "cache.clear()",
    "cache.append(torch.ones(4, device=D))",
    "memo.clear()",
    "memo['k'] = torch.ones(4, device=D)",
    "rows.reverse()",
    "rows[0] = torch.full((4,), 3.0, device=D)",
    "holder.factor = 0.5",
    "holder.t = torch.zeros(4, device=D)",
    "holder.kind = 'instance'",
    "count += 1",
    "del result",
    "kept.clear()",
    "torch.rand(2, device=D)",
)
FIRST = (
    "data({rows}, {seed})",
    "data({rows}, {seed}).requires_grad_()",
    "data(4, {seed})[:, :{rows}].t()",
    "data({rows}, {seed}, 8)[:, ::2]",
    "x",
    "pool[{seed} % 5 : {seed} % 5 + {rows}, :4]",
    "V.expand({rows}, 4)",
    "(data({rows}, {seed}).requires_grad_() * 2)",
    "W if {rows} == 4 else data({rows}, {seed})",
    "state[:{rows}]",
    "nn.Parameter(data({rows}, {seed}))",
)
SECOND = ("data({rows}, {seed} + 50)", "x", "x[:]", "x.detach()", "pool[:{rows}, 4:8]", "U[:{rows}]", "y")
AFTER = (
    "total(result).backward()",
    "(total(result) + total(x)).backward()",
    "(total(result) + total(fn(x, y, i, k))).backward()",
    "total(result).backward(retain_graph=True); total(result).backward()",
    "loss = total(result); loss.backward(retain_graph=True); loss.backward()",
    "loss = total(result); loss.backward(); loss.backward()",
    "torch.autograd.grad(total(result), [W], allow_unused=True)",
    "x.zero_()",
    "[each.detach().add_(1) for each in tensors(result)]",
    "[each.add_(1) for each in tensors(result)]; total(result).backward()",
    "with torch.no_grad(): W.mul_(0.5)\ntotal(result).backward()",
    "W.data = data(4, 8)\ntotal(result).backward()",
    "x.detach().mul_(2); total(result).backward()",
    "state.add_(1); total(result).backward()",
    "optimizer.step(); total(result).backward()",
    "total(result).backward(); optimizer.step(); optimizer.zero_grad()",
    "total(result).backward(); optimizer.step(); optimizer.zero_grad(set_to_none=False)",
    "kept.append(result)",
    "kept.append(result); total(kept).backward()",
    "later = total(result)",
    "later.backward()",
)
CONTEXTS = (
    "with torch.no_grad():",
    "with torch.inference_mode():",
    "with torch.autocast(D, dtype=torch.bfloat16):",
    "with torch.set_grad_enabled(False):",
)
RETURNS = ("{M}", "{M}, {M}", "{V}, {M}", "{S}", "{W}", "state", "x", "y", "({M}, [{V}, {M}[1:]])", "{M}[:, :2]")
RETURNS_TOO = (
    "dict(a={M}, b={M}[0], c=k)",
    "{M}.detach(), {M}",
    "{M}, W",
    "{M}.t()",
    "state[1:], {M}",
    "None",
    "[{M}, 'name', settings['scale']]",
    "x[1:], {M}",
    "{M}.expand(2, *{M}.shape)",
    "{M}.unsqueeze(1)[:, 0]",
    "holder.t, {S}",
    "{M}.split(2, 1)",
    "{M}.unbind(1)",
    "{M}.to(torch.bfloat16)",
    "{M} > 0",
    "{M}.argmax(1)",
    "memo.get('k'), {M}",
    "{M}, cache",
    "derived * 2, {M}",
    "{M}[1:], {M}[:-1]",
)


@dataclass(frozen=True)
class Program:
    """`setup` makes `fn`; each of `calls` calls it once or twice."""

    setup: str
    calls: tuple[str, ...]

    def text(self) -> str:
        """As it is to be read: what all programs begin with is left out."""
        return "\n".join([self.setup.replace(PRELUDE, "…\n"), *(f"# call {n}\n{c}" for n, c in enumerate(self.calls))])


class _Body:
    """Writes statements of a function, and knows which names stand for what."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.names = {
            "M": ["x", "y"],
            "W": ["W", "U", "state", "derived", "model.lin.weight"],
            "V": ["V", "row", "holder.t", "rows[0]", "model.mean", "model.lin.bias"],
            "S": ["count", "W[0, 0]"],
        }
        self.made = 0

    def filled(self, template: str, kind: str = "") -> str:
        text = template
        for letter, names in self.names.items():
            while f"{{{letter}}}" in text:
                # Those made last are the likelier ones, so that most of what is computed is used.
                at = min(self.draw(st.integers(0, len(names) - 1)), self.draw(st.integers(0, len(names) - 1)))
                text = text.replace(f"{{{letter}}}", names[len(names) - 1 - at], 1)
        if "{o}" in text:
            self.made += 1
            text = text.replace("{o}", f"v{self.made}")
            self.names[kind or "M"].append(f"v{self.made}")
        return text

    def statement(self, *, rare: bool, trains: bool) -> str:
        kinds = ["M"] * 8 + ["V", "W", "S", "write", "write", "effect", "effect"]
        kinds += ["python"] * rare + ["train"] * (3 * trains)
        kind = self.draw(st.sampled_from(kinds))
        pools = {"M": MATRICES, "V": VECTORS, "W": SQUARES, "S": SCALARS, "write": WRITES, "effect": EFFECTS}
        pools |= {"python": PYTHON_EFFECTS, "train": TRAINING}
        return self.filled(self.draw(st.sampled_from(pools[kind])), kind if kind in self.names else "M")

    def block(self, *, rare: bool, trains: bool) -> list[str]:
        """A few statements under a condition or a context, whose names are known within alone."""
        kept = {letter: list(names) for letter, names in self.names.items()}
        lines = [self.statement(rare=rare, trains=trains) for _ in range(self.draw(st.integers(1, 3)))]
        self.made += 1
        result = f"v{self.made}"
        inner = self.names["M"][-1]
        self.names = kept
        before = self.filled("{M}")
        self.names["M"].append(result)
        head = self.draw(st.sampled_from(BLOCKS))
        return [f"{result} = {before}", head, *(f"    {line}" for line in [*lines, f"{result} = {inner}"])]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Any. Most are of a kind that a graph can be of."""
    body = _Body(draw)
    rare, trains = draw(st.integers(0, 9)) == 9, draw(st.integers(0, 2)) == 2
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 8))):
        if draw(st.integers(0, 5)) == 5:
            lines += body.block(rare=rare, trains=trains)
        else:
            lines.append(body.statement(rare=rare, trains=trains))
    if draw(st.integers(0, 9)) == 9:
        lines.insert(draw(st.integers(0, len(lines))), draw(st.sampled_from(RAISES)))
        lines = _well_nested(lines)
    lines.append("return " + body.filled(draw(st.sampled_from(RETURNS + RETURNS_TOO))))
    setup = f"{PRELUDE}\n{draw(st.sampled_from(OPTIMIZERS))}\n\n\n" + (
        draw(st.sampled_from(_FORMS)).replace("{lines}", "\n        ".join(lines))
    )
    # What a step that runs its own backward returns has no graph of autograd's left to go through.
    after = [each for each in AFTER if not (trains and "total(" in each)]
    return Program(setup, tuple(draw(_calls(after))))


def _well_nested(lines: list[str]) -> list[str]:
    """With a line that was put into a block, or right under its head, indented as its neighbours are."""
    found: list[str] = []
    for place, line in enumerate(lines):
        after = lines[place + 1] if place + 1 < len(lines) else ""
        inside = not line.startswith(" ") and after.startswith("    ") and not line.endswith(":")
        found.append("    " + line if inside else line)
    return found


_FORMS = (
    """class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = model

    def forward(self, x, y, i, k):
        {lines}


plain = Whole()
""",
    """def outer(U, V, settings, holder, state):
    def made(x, y, i, k):
        {lines}

    return made


plain = outer(U, V, settings, holder, state)
""",
    """if True:
    def plain(x, y, i, k):
        {lines}
""",
)


@st.composite
def _calls(draw: st.DrawFn, afterwards: list[str]) -> list[str]:
    rows, first = draw(st.sampled_from((2, 3, 4, 5))), draw(st.sampled_from(FIRST))
    after, context = draw(st.sampled_from((*afterwards, "", "", ""))), draw(st.sampled_from((*CONTEXTS, *[""] * 6)))
    second, number = draw(st.sampled_from(SECOND)), draw(st.sampled_from((1, 2)))
    calls: list[str] = []
    for seed in range(draw(st.integers(6, 10))):
        odd = draw(st.integers(0, 5)) == 5
        size = draw(st.sampled_from((1, 2, 3, 4, 7))) if odd and draw(st.booleans()) else rows
        text = [
            f"x = {draw(st.sampled_from(FIRST)) if odd and draw(st.booleans()) else first}",
            f"y = {draw(st.sampled_from(SECOND)) if odd and draw(st.booleans()) else second}",
        ]
        if seed == 0:
            text = ["x, y = {data}, {data}".replace("{data}", "data({rows}, 99)"), *text]
        text.append("i = indices({rows}, {seed})")
        text.append(f"k = {3 if odd and draw(st.integers(0, 5)) == 5 else number}")
        if draw(st.integers(0, 3)) == 3:
            text.append(draw(st.sampled_from(CHANGES)))
        head = draw(st.sampled_from((*CONTEXTS, ""))) if odd and draw(st.booleans()) else context
        text.append(f"{head} result = fn(x, y, i, k)".strip())
        text.append(draw(st.sampled_from((*afterwards, ""))) if odd and draw(st.booleans()) else after)
        calls.append("\n".join(filter(None, text)).replace("{rows}", str(size)).replace("{seed}", str(seed)))
    return calls
