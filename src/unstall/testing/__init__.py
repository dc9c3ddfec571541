"""A pytest plugin: tests fail if code waits for the GPU, launches more work than before, or uses more memory.

`plugin.py` has the hooks. It imports the rest of this folder only if a test run uses the plugin.
"""
