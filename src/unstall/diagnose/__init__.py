"""Computes what there is to say about a recorded run: its steps, its busy and idle time, and its findings."""
