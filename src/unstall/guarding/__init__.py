"""Guards of a program against waits for the GPU: `no_sync`, `allow_sync`.

`regions.py` knows which guard is active in this thread and task, `state.py` is what a source of waits calls.
"""
