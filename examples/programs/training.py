"""Ordinary loops, with and without marks that say where a step begins."""

from __future__ import annotations

import torch
from torch import nn

from programs import Cause, Run, program


def small_bert() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=1024,
        hidden_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=1024,
    )
    return BertForSequenceClassification(config).to("cuda")


@program(steps=2, also=("stacks",))
def bert_amp() -> Run:
    """A small BERT in mixed precision: forward, backward on autograd's thread, and `GradScaler.step`, which
    reads back whether a gradient overflowed."""
    model = small_bert()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    scaler = torch.amp.GradScaler("cuda")
    ids, labels = torch.randint(0, 1024, (8, 64), device="cuda"), torch.randint(0, 2, (8,), device="cuda")

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(input_ids=ids, labels=labels).loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)  # stalls
        scaler.update()
        optimizer.zero_grad()

    causes = (Cause("launch-bound"), Cause("sync-grad-scaler", step, "aten::item", costs=None))
    return Run(step, ("launch",), causes)


def classifier() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.backends.cuda.matmul.allow_tf32 = True
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10))
    return (
        model.to("cuda"),
        torch.randn(8192, 1024, device="cuda"),
        torch.randint(0, 10, (8192,), device="cuda"),
    )


@program(also=("device",))
def train_item() -> Run:
    """A training step that reads its loss. The device idles from the end of the step until the host has
    launched the next forward pass; the milliseconds that the host waits before that cost nothing."""
    model, x, y = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def train() -> torch.Tensor:
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def step() -> float:
        return train().item()  # stalls

    return Run(step, ("device",), (Cause("sync-item", step, "aten::item"),), train)


@program()
def train_three_waits() -> Run:
    """Three lines of one function make the host wait. Torch's stacks say only which function, so they are
    told apart by operator."""
    model, x, y = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    pageable = x.cpu()

    def train(batch: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.cross_entropy(model(batch), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def step() -> None:
        batch = pageable.to("cuda", non_blocking=True)  # stalls
        loss = train(batch)
        if torch.isnan(loss):  # stalls
            raise ValueError("diverged")
        loss.item()  # stalls

    causes = (
        Cause("pageable-copy", step, "aten::to"),
        Cause("sync-bool", step, "aten::is_nonzero", mark=1),
        Cause("sync-item", step, "aten::item", mark=2),
    )
    return Run(step, ("device", "copy"), causes, lambda: train(x))


@program(steps=4, annotated=False, found_by="optimizer")
def unmarked_training() -> Run:
    """A training loop without `profiler.step()`: its steps are told by the optimizer's."""
    model, x, y = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return Run(step, ("device",))


@program(steps=6, annotated=False, found_by="period", also=("stacks",))
def unmarked_inference() -> Run:
    """An inference loop with no marks at all, reading its result each time: its steps are told by the period
    of the launches."""
    model, x, _ = classifier()

    @torch.no_grad()
    def infer() -> torch.Tensor:
        return model(x).argmax(-1)

    def step() -> torch.Tensor:
        return infer().cpu()  # stalls

    return Run(step, ("device",), (Cause("sync-cpu", step, "aten::to"),), infer)


@program(annotated=False, step_name="iteration")
def named_steps() -> Run:
    """Steps marked by an annotation of the program's own, given as `--step iteration`."""
    model, x, _ = classifier()

    def step() -> None:
        with torch.no_grad(), torch.profiler.record_function("iteration"):
            model(x).argmax(-1)

    return Run(step, ("device",))


@program(steps=1, annotated=False, found_by="whole")
def one_shot() -> Run:
    """One forward and backward pass, once: nothing repeats, so the whole run is the step."""
    model, x, y = classifier()

    def step() -> None:
        nn.functional.cross_entropy(model(x), y).backward()

    return Run(step, ("device", "launch"))
