"""Row 13."""

from unstall.course.row import Check, Row
from unstall.course.sources import COPYING

_WAITS, _DONE = "{}, the host waits", "{}, done after"
_COPY = _DONE.format("upload, pinned and non_blocking")
_SMALL = "64 bytes behind a kernel, pageable and non_blocking"
_NEW_MEMORY, _USED_AGAIN = (f"pin_memory(), then upload, {memory}" for memory in ("new memory", "memory used again"))
_VALUES = 4096 * 2048
_ONCE = "a single call was timed"
_NEW = "the model takes too little time for new pinned memory"


def _waits(what: str) -> Check:
    return Check(f"The host waits for the copy: {what}.", _WAITS.format(what), _COPY, at_least=0.5)


def _goes_on(what: str, done: str = _COPY) -> Check:
    return Check(f"The host goes on before the copy has ended: {what}.", _WAITS.format(what), done, at_most=0.4)


ROW = Row(
    number=13,
    topic="Copies",
    related=(12, 15),
    question="Should I pin memory, and what does non_blocking=True do?",
    checks=(
        _waits("upload, pageable"),
        _waits("upload, pageable and non_blocking"),
        _waits("upload, pinned"),
        _goes_on("upload, pinned and non_blocking"),
        _waits("download, pageable and non_blocking"),
        _goes_on("download, pinned and non_blocking"),
        _goes_on(_SMALL, _DONE.format(_SMALL)),
        Check(
            "A copy from a buffer that is pinned already takes less than one from pageable memory.",
            _COPY,
            _WAITS.format("upload, pageable"),
            at_most=0.8,
        ),
        Check(
            "Pinning first, and then copying, takes longer than the copy from pinned memory alone.",
            _DONE.format(_USED_AGAIN),
            _COPY,
            at_least=1.3,
        ),
        Check(
            "Pinning takes longer if it has to take memory from the system.",
            _WAITS.format(_NEW_MEMORY),
            _WAITS.format(_USED_AGAIN),
            at_least=1.1,
        ),
        Check(
            "If the source is written after a wait for the copy, all of its old values arrive.",
            "source zeroed after event.synchronize(), old values that arrive",
            equal=_VALUES,
        ),
        Check("Two copies of 64 KiB move 128 KiB, and no more.", "bytes of two copies", equal=128 * 2**10),
        Check("Both copies are on the current stream.", "streams of two copies", equal=1),
    ),
    source=COPYING,
    learn=(
        "You need both: from pinned memory, non_blocking=True lets the host go on after {upload, pinned and "
        "non_blocking, the host waits}; with ordinary (pageable) memory the host waits {upload, pageable and "
        "non_blocking, the host waits} all the same, except for uploads of up to 64 KiB (a download by "
        '`x.to("cpu", non_blocking=True)` takes pinned memory by itself).\n'
        "A copy of 32 MiB is done after {upload, pinned and non_blocking, done after} from pinned memory, and "
        "after {upload, pageable, the host waits} from pageable memory. But batches have to get into pinned memory "
        "first: `x.pin_memory()` is a copy on the host ({pin_memory(), then upload, memory used again, the host "
        "waits}, or {pin_memory(), then upload, new memory, the host waits} into new memory), and so is "
        "`buffer.copy_(x)` into a buffer that is pinned once, which takes about the shorter of these. With the "
        "upload that is {pin_memory(), then upload, memory used again, done after} here: on the H200 less than "
        "from pageable memory; on the T4 more, though the host is free earlier. So pin in another thread, as a "
        "DataLoader with workers and pin_memory=True does. That goes for NumPy, too: torch.from_numpy shares the "
        "array's memory, which is pageable.\n"
        "Write to a pinned source, and read what was copied to the host, only after the copy has ended "
        "(`event.synchronize()`): before, old values may be lost, some or all of them. A pageable source may be "
        "written as soon as the call returns. All these copies are on the current stream: to compute meanwhile, a "
        "copy needs another one (12)."
    ),
    change=(
        '`DataLoader(..., num_workers=4, pin_memory=True)` and `x = batch.to("cuda", non_blocking=True)`. With a '
        "buffer of your own:\n"
        "buffer, copied = torch.empty(shape, pin_memory=True), torch.cuda.Event()\n"
        "for batch in batches:\n"
        "    copied.synchronize()  # now the buffer may be written again\n"
        "    buffer.copy_(batch)\n"
        '    x = buffer.to("cuda", non_blocking=True)\n'
        "    copied.record()\n"
        "    train(x)"
    ),
    differs={
        "upload, pinned and non_blocking, the host waits": _ONCE,
        "download, pinned and non_blocking, the host waits": _ONCE,
        "64 bytes behind a kernel, pageable and non_blocking, the host waits": _ONCE,
        "pin_memory(), then upload, new memory, the host waits": _NEW,
        "pin_memory(), then upload, new memory, done after": _NEW,
        "source zeroed at once, old values that arrive": "a virtual GPU copies at once; `unstall run` names the line "
        "as a race",
    },
    numerics="real",
    finding="pageable-copy",
)
