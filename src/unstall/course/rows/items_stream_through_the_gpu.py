"""Row 14."""

from unstall.course.row import Check, Row
from unstall.course.sources import COPYING

ROW = Row(
    number=14,
    topic="Copies",
    related=(12,),
    question="How do I overlap copying in, computing and copying out?",
    checks=(
        Check("All ways give the right results.", "right results of 4 x 6 small items", equal=24),
        Check("No way has a race.", "races", equal=0),
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
            "stream_map needs less than a third of what all 40 items at once would need.",
            "stream_map, memory",
            "one stream, memory",
            at_most=13.3,
        ),
    ),
    source=COPYING,
    learn=(
        "Work on one stream runs in order, so nothing overlaps. With four streams that take turns with the items "
        "(strategy A), or with a stream for each of the three kinds of work (B), copies in, copies out and kernels run "
        "side by side: {strategy A} in place of {one stream}. A is simpler, as a stream keeps the order of its items, "
        "and both bound the memory: four items at a time. stream_map measures which of them is faster for your "
        "function, and needs at most a third of the memory that all items at once would need; it observes its first "
        "two calls, so the first result comes late. A missing wait is a race, which rarely shows in "
        "results: `compare_numbers` and `unstall run` name its lines."
    ),
    change="`for result in unstall.stream_map(model, items): ...` in place of a loop.",
    differs={"stream_map, memory": ""},
)
