from unstall.timeline.columns import I8, I32, I64

def replay(
    code: I8,
    thread: I32,
    stream: I32,
    target: I32,
    work: I64,
    call: I64,
    latency: I64,
    ops: I64,
    op_stream: I32,
    op_engine: I32,
    op_share: I32,
    op_blocks: I32,
    op_size: I32,
    op_cached: I32,
    op_after: I32,
    op_duration: I64,
    op_latency: I64,
    op_gap: I64,
    op_lag: I64,
    op_tail: I64,
    op_uncached: I64,
    device_of_stream: I32,
    threads: int,
    engines: int,
    capacity: int,
    /,
) -> tuple[bytearray, bytearray, bytearray, bytearray]: ...
def replay_job(
    programs: tuple[tuple[I8 | I32 | I64 | int, ...], ...],
    first: I64,
    program: I64,
    op: I64,
    waits: I8,
    transfer: I64,
    offsets: I64,
    /,
) -> tuple[list[tuple[bytearray, bytearray, bytearray, bytearray]], list[int]]: ...

class Replay:
    def __init__(self, capacity: int, fills_gaps: bool = False) -> None: ...
    def feed(
        self,
        code: I8,
        thread: I32,
        stream: I32,
        target: I32,
        work: I64,
        call: I64,
        latency: I64,
        ops: I64,
        op_stream: I32,
        op_engine: I32,
        op_share: I32,
        op_blocks: I32,
        op_size: I32,
        op_cached: I32,
        op_after: I32,
        op_duration: I64,
        op_latency: I64,
        op_gap: I64,
        op_lag: I64,
        op_tail: I64,
        op_uncached: I64,
        device_of_stream: I32,
        threads: int,
        engines: int,
        /,
    ) -> tuple[bytearray, bytearray, bytearray, bytearray]: ...
    def clock(self, thread: int, /) -> int: ...
    def done(self, stream: int, /) -> int: ...
    def marked(self, instruction: int, /) -> int: ...
