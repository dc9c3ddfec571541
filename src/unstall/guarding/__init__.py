"""Guards of a program against waits for the GPU: `no_sync`, `allow_sync`.

`regions.py` knows which guard is active in the current thread and asyncio task. A source of waits calls the functions
of `state.py`.
"""
