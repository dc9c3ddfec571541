"""Helpers that fix findings in the user's program. Each helper checks its own result and measures its own gain."""
