"""Computes the result of a recorded run: the steps, the busy and idle time, and the findings of all rules."""
