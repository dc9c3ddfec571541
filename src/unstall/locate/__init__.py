"""Finds out, for the events of a timeline, to which step and to which place in the source they belong."""
