"""Finds out where events belong: to which step in time, and to which place in the source."""
