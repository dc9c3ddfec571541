"""Reads the user's source files, if this is allowed, and makes patches of these files for findings."""
