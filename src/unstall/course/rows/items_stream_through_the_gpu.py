"""Row 14."""

from unstall.course.row import Check, Row

ROW = Row(
    number=14,
    topic="Copies",
    related=(12,),
    question='Copying in, computing and copying out side by side: has that "been implemented"?',
    checks=(
        *(
            check
            for way, subject in (("strategy A", "Strategy A"), ("strategy B", "Strategy B"), ("stream_map",) * 2)
            for check in (
                Check(f"{subject} gives the right results.", f"{way}, right results", equal=6),
                Check(f"{subject} has no race.", f"{way}, races", equal=0),
            )
        ),
        Check("Strategy A is faster than one stream.", "strategy A", "one stream", at_most=0.8),
        Check("Strategy B is faster than one stream.", "strategy B", "one stream", at_most=0.8),
        Check("stream_map is faster than one stream.", "stream_map", "one stream", at_most=0.8),
        Check("It takes at most two fifths longer than strategy A.", "stream_map", "strategy A", at_most=1.4),
        Check(
            "After the first result, it takes no longer than strategy A.",
            "stream_map, the other 39 results",
            "strategy A",
            at_most=1.1,
        ),
        Check("Four items at a time need four times the memory.", "strategy A, memory", "one stream, memory", 3, 5),
        Check("Strategy B needs no more.", "strategy B, memory", "strategy A, memory", at_most=1.1),
        Check(
            "stream_map needs less than half of what all 40 items at once would need.",
            "stream_map, memory",
            "one stream, memory",
            at_most=13.3,
        ),
    ),
    learn=(
        "Work on one stream runs in order, so nothing overlaps; with a stream for each item (strategy A), or for each "
        "of the three kinds of work (B), copies in, copies out and kernels run side by side. A is simpler: items of a "
        "stream follow each other, so few are in memory at once. stream_map can do both, measures which is faster, "
        "and bounds its memory. It observes its first two calls: on the H100, the first result takes 3.5 ms, and the "
        "other 39 no longer than by hand; a virtual GPU does not charge for observing. A wait that is missing is a "
        "race: it rarely makes a result wrong, so let compare_numbers look for it."
    ),
    change="`for result in unstall.stream_map(model, items): ...` in place of a loop.",
)
