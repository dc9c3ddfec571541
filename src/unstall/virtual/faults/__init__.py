"""Finds the faults of devices in a log: which assertions failed, and when Python got the error."""
