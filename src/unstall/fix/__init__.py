"""Helpers for the user's own program that mend what the findings find: each proves its result and measures its gain."""
