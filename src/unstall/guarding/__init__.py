"""Guards of a program against waits for the GPU: `no_sync`, `allow_sync`.

`regions.py` finds the guard that is active in the current thread and asyncio task. `state.py` has the functions that a
source of waits calls.
"""
