"""Row 14."""

from unstall.course.row import Check, Row

ROW = Row(
    number=14,
    question='Which strategy keeps a GPU busy in bounded memory? "I would not be surprised to discover this has been '
    'implemented." Has it?',
    checks=(
        Check("Strategy A is faster than one stream.", "strategy A", "one stream", at_most=0.8),
        Check("Strategy B is faster than one stream.", "strategy B", "one stream", at_most=0.8),
        Check("stream_map is as fast as strategy A.", "stream_map", "strategy A", at_most=1.25),
        Check("Strategy A needs memory for 4 of the 40 items.", "strategy A, memory", at_most=200 * 2**20),
        Check("Strategy B needs memory for 4 of the 40 items.", "strategy B, memory", at_most=200 * 2**20),
        Check("stream_map needs memory for some items, not for all.", "stream_map, memory", at_most=512 * 2**20),
    ),
    learn=(
        "In both strategies, copies in, copies out and kernels run side by side. A is simpler: the order of a stream "
        "bounds its memory. stream_map can do both, measures which is faster, and keeps memory bounded, too."
    ),
)
