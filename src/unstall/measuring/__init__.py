"""`bench`, `compare`, `Timer` and `Stopwatch`: they measure times correctly even if calls return
before their work on the device is done.
"""
