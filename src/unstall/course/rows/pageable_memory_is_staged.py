"""Row 13."""

from unstall.course.row import Check, Row

_RETURNS, _DONE = "{} returns after", "{} is done after"


def _waits(what: str) -> Check:
    return Check(f"The host waits: {what}.", _RETURNS.format(what), _DONE.format(what), at_least=0.5)


def _goes_on(what: str) -> Check:
    return Check(f"The host goes on at once: {what}.", _RETURNS.format(what), _DONE.format(what), at_most=0.2)


ROW = Row(
    number=13,
    topic="Copies",
    related=(12, 15),
    question='Pinning and non_blocking: does "a lot more data transfer than I\'m expecting" come from them?',
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
        Check(
            "A kernel that reads mapped memory takes several times as long as on the GPU's memory.",
            _DONE.format("sum of mapped memory"),
            _DONE.format("sum of the GPU's memory"),
            at_least=3,
        ),
        Check(
            "It takes about as long as a copy of the memory.",
            _DONE.format("sum of mapped memory"),
            _DONE.format("upload, pinned and non_blocking"),
            at_least=0.7,
            at_most=1.5,
        ),
        Check("Two copies of 64 KiB move 128 KiB, and no more.", "bytes of two copies", equal=128 * 2**10),
        Check("Both copies are on the current stream.", "streams of two copies", equal=1),
    ),
    learn=(
        "You need both: pinning makes the copy faster, and non_blocking=True lets the host go on. Neither moves "
        "more: a copy moves its bytes once, on the current stream. The driver copies pageable memory through two "
        "pinned pieces of 1 MiB, and the host waits for a free one; only uploads of up to 64 KiB never wait. "
        '.to("cpu", non_blocking=True) pins its result by itself: wait before you read it, or you race with the '
        "copy, even if a virtual GPU shows the right value. A kernel may also read pinned memory itself (mapped), "
        "but over the link, each time: copy what is read more than once."
    ),
    change=(
        '`DataLoader(..., pin_memory=True)` and `x = x.to("cuda", non_blocking=True)`; after a non_blocking '
        "download `event.record()`, and `event.synchronize()` before the result is read."
    ),
    numerics="real",
    finding="pageable-copy",
)
