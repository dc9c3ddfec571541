"""Limits on a run, and whether they hold."""
