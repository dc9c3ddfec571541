"""Row 13."""

from unstall.course.row import Check, Row

_RETURNS, _DONE = "{} returns after", "{} is done after"
_VALUES = 4096 * 2048


def _waits(what: str) -> Check:
    return Check(f"The host waits: {what}.", _RETURNS.format(what), _DONE.format(what), at_least=0.5)


def _goes_on(what: str) -> Check:
    return Check(f"The host goes on at once: {what}.", _RETURNS.format(what), _DONE.format(what), at_most=0.2)


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
        _waits("64 bytes, pageable"),
        _goes_on("64 bytes, pageable and non_blocking"),
        Check(
            "Both directions at once take less than one after the other.",
            _DONE.format("both directions"),
            _DONE.format("upload, pinned and non_blocking"),
            at_most=1.8,
        ),
        Check(
            "Pinning takes longer if it has to take memory from the system.",
            _RETURNS.format("pin_memory(), new memory"),
            _RETURNS.format("pin_memory(), memory used again"),
            at_least=1.1,
        ),
        Check(
            "If the source is written after a wait for the copy, all of its old values arrive.",
            "source zeroed after event.synchronize(), old values that arrive",
            equal=_VALUES,
        ),
        Check(
            "A kernel that reads mapped memory takes about as long as a copy of it.",
            _DONE.format("sum of mapped memory"),
            _DONE.format("upload, pinned and non_blocking"),
            at_least=0.7,
            at_most=1.5,
        ),
        Check("Two copies of 64 KiB move 128 KiB, and no more.", "bytes of two copies", equal=128 * 2**10),
        Check("Both copies are on the current stream.", "streams of two copies", equal=1),
    ),
    learn=(
        "You need both: pinning makes the copy faster, and non_blocking=True lets the host go on ({upload, pinned and "
        "non_blocking returns after} in place of {upload, pageable returns after}); with ordinary, pageable memory the "
        "host waits all the same, but for uploads of up to 64 KiB with non_blocking=True. Write to a pinned source, "
        "and read what was copied to the host, only after the copy has ended (`event.synchronize()`), or other values "
        "may arrive. A virtual GPU copies at once, so the old ones do, but `unstall run` names the line as a race; a "
        "pageable source may be written as soon as the call returns. Pinning is a copy, too, for which the host waits: "
        "{pin_memory(), new memory returns after} if it takes memory from the system, and {pin_memory(), memory used "
        "again returns after} if not. So pin a buffer once and use it again, or let a DataLoader's thread pin: "
        '`x.pin_memory().to("cuda")` of each batch often costs what it gains. Neither moves more data: a copy moves '
        "its bytes once, on the current stream; a kernel that reads pinned memory itself (mapped) moves them each time."
    ),
    change=(
        '`DataLoader(..., pin_memory=True)` and `x = x.to("cuda", non_blocking=True)`; after a non_blocking copy '
        "`event.record()`, and `event.synchronize()` before its pinned source is written, or its result on the host "
        "is read (`event = torch.cuda.Event()`)."
    ),
    numerics="real",
    finding="pageable-copy",
)
