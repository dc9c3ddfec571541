"""Helpers that fix findings in the user's own program. Each proves its result and measures its gain."""
