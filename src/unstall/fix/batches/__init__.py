"""Batches of a loader, ahead of the program."""
