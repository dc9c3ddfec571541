"""Row 13."""

from unstall.course.row import Check, Row

_RETURNS, _DONE = "{} returns after", "{} is done after"


def _waits(what: str) -> Check:
    return Check(f"The host waits: {what}.", _RETURNS.format(what), _DONE.format(what), at_least=0.5)


def _goes_on(what: str) -> Check:
    return Check(f"The host goes on at once: {what}.", _RETURNS.format(what), _DONE.format(what), at_most=0.2)


ROW = Row(
    number=13,
    question='"There seems to be a lot more data transfer than I\'m expecting": is it linked with non_blocking?',
    checks=(
        _waits("upload, pageable"),
        _waits("upload, pageable and non_blocking"),
        _waits("upload, pinned"),
        _goes_on("upload, pinned and non_blocking"),
        _waits("download, pageable and non_blocking"),
        _goes_on("download, pinned and non_blocking"),
        Check(
            "Both directions at once take less than one after the other.",
            _DONE.format("both directions"),
            _DONE.format("upload, pinned and non_blocking"),
            at_most=1.8,
        ),
        Check("Two copies of 64 KiB move 128 KiB, and no more.", "bytes of two copies", equal=128 * 2**10),
        Check("Both copies are on the current stream.", "streams of two copies", equal=1),
    ),
    learn=(
        "non_blocking=True lets the host go on only if the memory is pinned: pageable memory is staged by the driver "
        "while the host waits. It moves no more bytes, and uses no stream of its own: a copy is on the current stream. "
        "Pin once, copy with non_blocking=True, and put copies on a stream of their own."
    ),
    numerics="real",
)
