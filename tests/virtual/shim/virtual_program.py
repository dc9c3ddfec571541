"""Run in a process of its own: what a program sees of the virtual GPU, and what the log has of it, as JSON."""

from __future__ import annotations

import copy
import io
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from unstall.virtual.shim.load import load

RECORD = np.dtype(
    [(name, "i8") for name in ("host_ns", "computing_ns", "a", "b", "stream")]
    + [(name, "i4") for name in ("thread", "stack", "id", "uses")]
    + [("code", "u1"), ("device", "i1"), ("flags", "u1"), ("within", "u1"), ("pad", "V4")]
)
OP_BEGIN, OP_END, LAUNCH, COPY, MALLOC, FREE, PIN = 0, 1, 4, 5, 6, 7, 19
EVENT_RECORD, EVENT_WAIT, SYNC_STREAM, CAPTURE_BEGIN, CAPTURE_END, GRAPH_LAUNCH = 9, 10, 12, 15, 16, 17
WORK = 28

shim = load(2, sys.argv[1])
import torch  # noqa: E402

FACTS: dict[str, dict[str, Callable[[], Any]]] = {"real": {}, "skip": {}}


def fact(function: Callable[[], Any]) -> Callable[[], Any]:
    """The function's result, under its name, where values are computed."""
    FACTS["real"][function.__name__] = function
    return function


def fact_of_shapes(function: Callable[[], Any]) -> Callable[[], Any]:
    """The same, where numerics are skipped."""
    FACTS["skip"][function.__name__] = function
    return function


def logged(act: Callable[[], Any]) -> Any:
    """What the log has of this."""
    shim.take()
    act()
    return np.frombuffer(shim.take()[0], RECORD)


def work_of(act: Callable[[], Any]) -> list[int]:
    """The codes of what was logged, without operators, memory and what the CPU computes."""
    return [int(code) for code in logged(act)["code"] if code not in (OP_BEGIN, OP_END, MALLOC, FREE, WORK)]


def raised(act: Callable[[], Any]) -> list[str]:
    """The type and the text of what this raises."""
    try:
        act()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return []


def trained(device: str) -> list[Any]:
    """Losses and weights of a small training whose random numbers are all the CPU's."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Linear(16, 3))
    inputs, labels = torch.randn(5, 8).to(device), torch.tensor([0, 1, 2, 0, 1]).to(device)
    net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=False)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [losses, [parameter.tolist() for parameter in net.parameters()]]


@fact
def training_is_the_cpus() -> bool:
    return trained("cuda") == trained("cpu")


@fact
def means_by_threads() -> list[int]:
    """How many means the same values have by torch's number of threads: on the CPU, on the virtual GPU. And the number
    after that."""
    before = torch.get_num_threads()
    on_cpu = torch.randn(1 << 20, generator=torch.Generator().manual_seed(0))
    values = on_cpu, on_cpu.cuda()
    means: list[set[float]] = [set(), set()]
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        for seen, tensor in zip(means, values, strict=True):
            seen.add(tensor.mean().item())
    after = torch.get_num_threads()
    torch.set_num_threads(before)
    return [*map(len, means), after]


@fact
def printed() -> str:
    return repr(torch.arange(3, device="cuda"))


@fact
def saved_and_loaded() -> list[Any]:
    file = io.BytesIO()
    torch.save({"x": torch.arange(3.0, device="cuda:1")}, file)
    file.seek(0)
    loaded = torch.load(file)["x"]
    return [str(loaded.device), loaded.tolist()]


@fact
def copied_deep() -> list[Any]:
    x = torch.arange(4.0, device="cuda")
    y, part = copy.deepcopy([x, x[1:]])
    part.add_(1)
    return [x.tolist(), y.tolist()]


@fact
def nonzero() -> list[Any]:
    x = torch.tensor([0, 3, 0, 5], device="cuda")
    return [x.nonzero().tolist(), x[x > 0].tolist(), x.masked_select(x > 4).tolist()]


@fact
def nonzero_waits() -> list[int]:
    x = torch.ones(4, device="cuda")
    return work_of(lambda: x.nonzero())


@fact
def item_reads() -> list[int]:
    x = torch.ones((), device="cuda")
    records = logged(x.item)
    copies = records[records["code"] == COPY]
    return [*work_of(x.item), int(copies["flags"][0]), int(copies["a"][0])]


@fact
def flags_of_copies() -> list[list[int]]:
    host, pinned, device = torch.ones(10), torch.ones(10).pin_memory(), torch.ones(10, device="cuda")
    moves = [
        lambda: host.to("cuda"),
        lambda: pinned.to("cuda", non_blocking=True),
        lambda: device.cpu(),
        lambda: device.clone(),
    ]
    copies = [logged(move) for move in moves]
    return [[int(row["flags"]), int(row["a"])] for rows in copies for row in rows[rows["code"] == COPY]]


@fact
def bytes_that_the_driver_pins() -> list[int]:
    kept: list[torch.Tensor] = []

    def pinned(kib: int) -> int:
        records = logged(lambda: kept.append(torch.empty(kib << 10, dtype=torch.uint8, pin_memory=True)))
        return int(sum(records["a"][records["code"] == PIN])) >> 10

    kept.append(torch.empty(1 << 20, dtype=torch.uint8, pin_memory=True))  # other facts may have pinned some
    kept.append(torch.empty(1 << 20, dtype=torch.uint8, pin_memory=True))
    chunks = [pinned(1024) for _ in range(4)]
    return [sum(chunks), len(set(chunks)), pinned(3 << 10), pinned(64 << 10)]


@fact
def waits_of_copies() -> list[list[int]]:
    host, pinned = torch.ones(10), torch.ones(10).pin_memory()
    return [work_of(lambda: host.to("cuda")), work_of(lambda: pinned.to("cuda", non_blocking=True))]


@fact
def streams_and_events() -> list[list[int]]:
    x = torch.ones(4, device="cuda")
    side, event = shim.new_stream(0, 0), shim.new_event()

    def act() -> None:
        x.add_(1)
        shim.record_event(event, 0, 0)
        shim.set_stream(0, side)
        shim.wait_event(event, 0, side)
        x.add_(1)
        shim.set_stream(0, 0)
        shim.sync_stream(0, side)

    rows = logged(act)
    kept = rows[(rows["code"] != OP_BEGIN) & (rows["code"] != OP_END)]
    return [[int(row["code"]), int(row["stream"] == side)] for row in kept]


@fact
def gone_events() -> list[list[int]]:
    kept, never = torch.cuda.Event(), torch.cuda.Event()

    def act() -> None:
        for _ in range(3):
            torch.cuda.Event().record()
        for _ in range(3):
            kept.record()

    shim.take()
    act()
    del never  # was never recorded, and so never came to be
    records, _, gone = shim.take()
    recorded = np.frombuffer(records, RECORD)
    events = recorded["a"][recorded["code"] == EVENT_RECORD]
    return [(events - events[0]).tolist(), (np.frombuffer(gone, np.int64) - events[0]).tolist()]


@fact
def resized() -> list[Any]:
    x = torch.arange(4.0, device="cuda")

    def act() -> None:
        x.resize_(100)

    codes = [int(code) for code in logged(act)["code"] if code in (MALLOC, FREE)]
    return [x[:4].tolist(), codes]


@fact
def every_allocation_is_freed() -> list[bool]:
    def act() -> None:
        trained("cuda")

    rows = logged(act)
    made, freed = rows["a"][rows["code"] == MALLOC], rows["a"][rows["code"] == FREE]
    return [len(made) > 50, len(set(made.tolist()) - set(freed.tolist())) == 0]


def computed_on_the_cpu(act: Callable[[], Any]) -> list[str]:
    """The operators of the CPU that are priced: the names in their signatures, in order."""
    records = logged(act)
    return [shim.signatures(number)[0][0] for number in records["id"][records["code"] == WORK].tolist()]


@fact
def operators_of_the_cpu() -> dict[str, list[str]]:
    x, image, filters = torch.ones(4, 8), torch.ones(1, 2, 5, 5), torch.ones(2, 2, 3, 3)
    ranks = torch.vmap(torch.sum)
    return {
        "two": computed_on_the_cpu(lambda: x.mul(x).sum(-1)),
        "view": computed_on_the_cpu(lambda: x.t()[1:].reshape(-1).detach()),
        "made of others": computed_on_the_cpu(lambda: torch.nn.functional.linear(x, x)),
        "convolution": computed_on_the_cpu(lambda: torch.conv2d(image, filters)),
        "a list": computed_on_the_cpu(lambda: torch.cat([x, x])),
        "an index": computed_on_the_cpu(lambda: x[torch.tensor([0, 1])]),
        "in place": computed_on_the_cpu(lambda: x.copy_(x + 1)),
        "mapped": computed_on_the_cpu(lambda: ranks(x)),
        "sparse": computed_on_the_cpu(lambda: x.to_sparse().coalesce()) and [],
        "on the device": computed_on_the_cpu(lambda: torch.ones(3, device="cuda").add_(1).cpu()),
    }


@fact
def threads_of_the_cpu() -> list[int]:
    before, told = torch.get_num_threads(), []
    for count in (3, 1):
        torch.set_num_threads(count)
        records = logged(lambda: torch.ones(3))
        told.append(int(records["a"][records["code"] == WORK][-1]))
    torch.set_num_threads(before)
    return told


@fact
def what_a_record_is_within() -> list[list[int]]:
    x, on_device = torch.ones(3), torch.ones(3, device="cuda")
    return [logged(lambda: x + x)["within"].tolist(), logged(lambda: on_device.add_(1))["within"].tolist()]


@fact
def operators_end_in_order() -> bool:
    depth = 0
    for code in logged(lambda: trained("cuda"))["code"]:
        depth += {OP_BEGIN: 1, OP_END: -1}.get(int(code), 0)
        if depth < 0:
            return False
    return depth == 0


@fact
def uses() -> list[list[int]]:
    x, y = torch.ones(8, device="cuda"), torch.ones(8, device="cuda")
    shim.take()
    x[2:4].add_(y[:2])
    rows = shim.take()[1]
    table = np.frombuffer(rows, np.dtype([("allocation", "i8"), ("offset", "i8"), ("bytes", "i8"), ("write", "V8")]))
    numbers = {shim.allocation_of(x): 0, shim.allocation_of(y): 1}
    return [
        [numbers[int(row["allocation"])], int(row["offset"]), int(row["bytes"]), row["write"].tobytes()[0]]
        for row in table
    ]


@fact
def signature() -> Any:
    x = torch.ones(2, 3, device="cuda")
    x.t().sum(0)
    return [one for one in shim.signatures(0) if one[0] == "aten::sum"][-1]


@fact
def repeated_inputs() -> Any:
    """Of each argument and result of a call: whether an earlier argument has its memory."""
    x = torch.ones(2, 3, device="cuda")
    calls: dict[str, list[Callable[[], object]]] = {
        "aten::mul": [lambda: x * x, lambda: x * x.clone(), lambda: x[:, :2] * x[:, 1:], lambda: x.mul_(x)],
        "aten::bmm": [lambda: torch.bmm(x.view(2, 1, 3), x.view(2, 3, 1))],
    }
    found = []
    for name, some in calls.items():
        for call in some:
            call()
            _, _, inputs, outputs = [one for one in shim.signatures(0) if one[0].removesuffix("_") == name][-1][:4]
            found.append([len(tensor) > 4 for tensor in (*inputs, *outputs)])
    return found


@fact
def stack_names_the_function() -> list[str]:
    x = torch.ones(3, device="cuda")
    rows = logged(lambda: x + 1)
    stack = shim.stacks(0)[int(rows["stack"][rows["code"] == LAUNCH][0])]
    return [code.co_name for code, _ in stack][:3]


@fact
def devices_that_do_not_fit() -> list[list[str]]:
    x = torch.ones(2, 2, device="cuda")
    return [
        raised(lambda: x + torch.ones(2, 2)),
        raised(lambda: x @ torch.ones(2, 2)),
        raised(lambda: x + x.to("cuda:1")),
    ]


@fact
def scalars_of_the_host() -> Any:
    ones = torch.ones(2, device="cuda")
    return (ones + torch.tensor(2.0)).tolist() + (7 * ones // 3).tolist() + ones.eq_(1).tolist()


@fact
def out_of_memory() -> list[Any]:
    asked: list[int] = []

    class Full:
        def make_room(self, device: int, request: int) -> None:
            asked.append(device)
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 4.00 MiB.")

    shim.configure(2, sys.argv[1], Full())
    shim.set_headroom(0, 1 << 20)
    what = raised(lambda: torch.empty(4 << 20, dtype=torch.uint8, device="cuda"))
    shim.configure(2, sys.argv[1], None)
    shim.set_headroom(0, (1 << 63) - 1)
    return [*what, asked]


@fact
def drained() -> bool:
    class Drain:
        count = 0

        def drain(self) -> None:
            Drain.count += 1
            shim.take()

        def call_facts(self, signature: int) -> tuple[int, bool]:
            return 0, False

    x = torch.ones(3, device="cuda")
    shim.configure(2, sys.argv[1], Drain())
    for _ in range(30000):
        x.add_(1)
    shim.configure(2, sys.argv[1], None)
    return Drain.count >= 1


@fact
def generators() -> list[bool]:
    cpu_before = torch.get_rng_state()
    generator = torch.Generator("cuda").manual_seed(3)
    first = torch.rand(4, device="cuda", generator=generator)
    state = generator.get_state()
    second = torch.rand(4, device="cuda", generator=generator)
    generator.set_state(state)
    again = torch.rand(4, device="cuda", generator=generator)
    torch.nn.functional.dropout(first)
    return [torch.equal(second, again), torch.equal(first, second), torch.equal(cpu_before, torch.get_rng_state())]


@fact
def graph() -> list[Any]:
    x, total = torch.zeros(3, device="cuda"), torch.zeros((), device="cuda")
    side = shim.new_stream(0, 0)

    def act() -> None:
        shim.set_stream(0, side)
        shim.capture_begin(1, 0, side, 1)
        y = torch.nn.functional.relu(x * 2) + 1
        total.add_(y.sum())
        shim.capture_end(1)
        shim.set_stream(0, 0)
        values.append(total.clone())
        for step in (1.0, 2.0):
            x.fill_(step)
            shim.replay(1, 0, side)
            values.extend([y.clone(), total.clone()])

    values: list[Any] = []
    codes = logged(act)["code"]
    kept = [int(code) for code in codes if code in (CAPTURE_BEGIN, CAPTURE_END, GRAPH_LAUNCH)]
    shim.free_graph(1)
    return [[value.tolist() for value in values], kept]


@fact
def memory_of_a_graph() -> list[Any]:
    x, places = torch.arange(4.0, device="cuda"), set()
    kept = [x]
    side = shim.new_stream(0, 0)
    shim.set_stream(0, side)
    shim.capture_begin(4, 0, side, 1)
    y = x
    for step in range(40):
        y = torch.relu(torch.sigmoid(y * 2) + 5)
        places.add(y.data_ptr())
        if step == 20:
            kept.append(y)
    shim.capture_end(4)
    shim.set_stream(0, 0)
    x.fill_(3)
    shim.replay(4, 0, 0)
    expected = x
    for step in range(40):
        expected = torch.relu(torch.sigmoid(expected * 2) + 5)
        if step == 20:
            kept.append(expected)
    return [len(places), torch.equal(y, expected), torch.equal(kept[1], kept[2])]


@fact
def waiting_in_a_capture() -> list[list[str]]:
    x = torch.ones(3, device="cuda")
    side = shim.new_stream(0, 0)
    shim.set_stream(0, side)
    shim.capture_begin(2, 0, side, 1)
    errors = [raised(x.sum().item), raised(lambda: shim.capture_end(2))]
    shim.set_stream(0, 0)
    return errors


@fact
def share_of_giving_back() -> float:
    """Of the time from a FREE of 256 MiB to the next record: how much is no work of the program's."""
    held = [torch.ones(1 << 26, device="cuda")]

    def act() -> None:
        held.clear()
        torch.ones(1, device="cuda")

    records = logged(act)
    at = records["code"].tolist().index(FREE)
    return float(records["computing_ns"][at + 1] / (records["host_ns"][at + 1] - records["host_ns"][at]))


@fact_of_shapes
def small_values() -> list[Any]:
    x = torch.arange(10, device="cuda")
    return [x.sum().item(), x[x > 6].tolist()]


@fact_of_shapes
def large_shapes() -> list[Any]:
    x = torch.ones(1 << 20, 1 << 10, device="cuda", requires_grad=True)
    y = (x @ torch.ones(1 << 10, 2, device="cuda")).sum()
    y.backward()
    assert x.grad is not None
    return [list(x.grad.shape), y.item()]


@fact_of_shapes
def small_values_of_a_graph() -> list[Any]:
    x, weight = torch.ones(3, device="cuda"), torch.ones(1 << 10, 1 << 10, device="cuda")
    out, on_host = torch.zeros(3, device="cuda"), torch.empty(3).pin_memory()
    side = shim.new_stream(0, 0)
    shim.set_stream(0, side)
    shim.capture_begin(3, 0, side, 1)
    out.copy_(x * 2)
    out.add_(1)
    on_host.copy_(out, non_blocking=True)
    large = (weight @ weight).sum()
    shim.capture_end(3)
    shim.set_stream(0, 0)
    x.fill_(5)
    shim.replay(3, 0, 0)
    return [out.tolist(), on_host.tolist(), large.item()]


json.dump({name: function() for name, function in FACTS[sys.argv[1]].items()}, sys.stdout)
