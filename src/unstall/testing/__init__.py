"""A pytest plugin: tests fail if code waits for the GPU, launches more work than before, or uses
more memory.

`plugin.py` has the hooks. The rest of this folder is imported only if a test run uses the plugin.
"""
