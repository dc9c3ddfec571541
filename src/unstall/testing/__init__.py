"""A pytest plugin: tests that fail if code waits for the GPU, launches more than before, or takes more memory.

`plugin.py` has the hooks. It imports the rest of this room only if a test run uses it.
"""
