"""Streams and events, as a program makes, orders and asks them."""

import torch
from virtual.torch_cuda.programs.telling import fact

Event, Stream = torch.cuda.Event, torch.cuda.Stream
fact("subclasses", lambda: [issubclass(Event, torch.Event), issubclass(Stream, torch.Stream)])
fact(
    "new streams", lambda: [[s.stream_id, s.priority] for s in (Stream(priority=p) for p in (0, 0, -1, -2, -3, -9, 4))]
)
fact("priorities", Stream.priority_range)
fact("default stream", lambda: [torch.cuda.current_stream().cuda_stream, repr(torch.cuda.default_stream())])
fact(
    "the pool comes round", lambda: (lambda s: [i for i in range(1, 70) if s[i] == s[0]])([Stream() for _ in range(70)])
)
fact("equal", lambda: [Stream() == Stream(), torch.cuda.current_stream() == torch.cuda.default_stream()])
fact("equal to torch.Stream", lambda: torch.cuda.current_stream() == torch.accelerator.current_stream())
fact("as a key", lambda: {torch.cuda.current_stream(): 1}[torch.cuda.default_stream()])


def within_streams() -> object:
    side, other = Stream(), Stream()
    before = torch.cuda.current_stream()
    with torch.cuda.stream(side):
        first = torch.cuda.current_stream() == side
        with other:
            second = torch.cuda.current_stream() == other
        third = torch.cuda.current_stream() == side
    return [first, second, third, torch.cuda.current_stream() == before]


def ordered_work() -> object:
    side = Stream()
    x = torch.ones(1000, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 2
    event = side.record_event()
    torch.cuda.current_stream().wait_event(event)
    torch.accelerator.current_stream().wait_event(event)
    y.record_stream(side)
    event.synchronize()
    side.synchronize()
    return [y.sum().item(), side.query(), event.query()]


def slept_ms() -> object:
    start, end = Event(enable_timing=True), Event(enable_timing=True)
    start.record()
    torch.cuda._sleep(100_000_000)
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def slept_ms_of_torch_event() -> object:
    start, end = torch.Event("cuda", enable_timing=True), torch.Event("cuda", enable_timing=True)
    start.record()
    torch.cuda._sleep(100_000_000)
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def not_done_yet() -> object:
    start, end = Event(enable_timing=True), Event(enable_timing=True)
    start.record()
    torch.cuda._sleep(1_000_000_000)
    end.record()
    return start.elapsed_time(end)


def waiting() -> object:
    torch.cuda.synchronize()
    event = Event()
    torch.cuda._sleep(1_000_000_000)
    event.record()
    before = event.query(), torch.cuda.current_stream().query()
    event.synchronize()
    return [*before, event.query(), torch.cuda.current_stream().query()]


def empty_ms(timed: bool) -> object:
    """Between two events, with a third one in between."""
    start, between, end = Event(enable_timing=True), Event(enable_timing=timed), Event(enable_timing=True)
    torch.cuda._sleep(100_000_000)
    for event in (start, between, end):
        event.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


fact("empty ms", lambda: [empty_ms(timed=False), empty_ms(timed=True)])
fact("within streams", within_streams)
fact("ordered work", ordered_work)
fact("slept ms", slept_ms)
fact("slept ms of torch.Event", slept_ms_of_torch_event)
fact("waiting", waiting)
fact("without timing", lambda: Event().elapsed_time(Event()))
fact("not recorded", lambda: Event(enable_timing=True).elapsed_time(Event(enable_timing=True)))
fact("not done", not_done_yet)
fact("new event", lambda: [repr(Event()), Event().device, Event().query(), Event().cuda_event, Event().wait()])


def recorded_event() -> object:
    event = Event()
    event.record()
    return [str(event.device), event.cuda_event == event.event_id != 0, repr(event).startswith("<torch.cuda.Event 0x")]


fact("recorded event", recorded_event)
fact("between processes", lambda: Event(interprocess=True))
fact("handle", lambda: Event().ipc_handle())
fact("external stream", lambda: torch.cuda.ExternalStream(0x1234))
fact("stream from elsewhere", lambda: torch.cuda.get_stream_from_external(0x1234))
