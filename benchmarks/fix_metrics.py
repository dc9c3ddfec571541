"""`MetricBuffer` on a step that the host bounds: `python -m benchmarks.fix_metrics --out metrics.json`.

Training steps of a net of many small layers, with three metrics a step: not read, added to a MetricBuffer, and read by
`.item()` at once. Exits with 1 where adding them takes more than 2 %. Runs on the virtual GPU too:
`unstall run --gpu h200 --numerics skip -m benchmarks.fix_metrics`.
"""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.fix_timing import Report, arguments, interleaved, needs_gpu, ratio

STEPS = 30


def main() -> None:
    options = arguments("MetricBuffer")
    torch = needs_gpu()
    from unstall import MetricBuffer

    net = torch.nn.Sequential(
        *[layer for _ in range(60) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
    ).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, foreach=False)
    inputs, labels = torch.randn(32, 64, device="cuda"), torch.randint(0, 64, (32,), device="cuda")

    def step() -> tuple[Any, Any, Any]:
        optimizer.zero_grad()
        scores = net(inputs)
        loss = torch.nn.functional.cross_entropy(scores, labels)
        loss.backward()
        optimizer.step()
        return loss, (scores.argmax(1) == labels).float().mean(), scores.abs().max()

    def without() -> None:
        for _ in range(STEPS):
            step()

    add_us: list[float] = []
    last: list[Any] = []

    def buffered() -> None:
        rows: list[Any] = []
        with MetricBuffer(rows.append) as metrics:
            for _ in range(STEPS):
                loss, accuracy, largest = step()
                metrics.add(loss=loss, accuracy=accuracy, largest=largest)
        assert len(rows) == STEPS
        last[:] = [metrics]
        add_us.append(metrics.stats().add_ns / STEPS / 1e3)

    def at_once() -> None:
        for _ in range(STEPS):
            for value in step():
                value.item()

    report = Report(options.out)
    took = interleaved({"without": without, "MetricBuffer": buffered}, 3 * options.rounds)
    figures = {
        "step_ms": statistics.median(took["without"]) / STEPS,
        "add_us": statistics.median(add_us),
        "over_none": ratio(took["MetricBuffer"], took["without"]),
        "stats": last[0].stats().text,
    }
    report.add("MetricBuffer", figures, at_most={"over_none": 1.02})
    took = interleaved({"without": without, "item": at_once}, min(options.rounds, 5))
    report.add("item() at once", {"over_none": ratio(took["item"], took["without"])})
    report.finish()


if __name__ == "__main__":
    main()
