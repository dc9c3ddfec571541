"""Fetches a loader's batches ahead of the program."""
