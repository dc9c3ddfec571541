"""Finds the faults of devices in a log: assertions that failed, and when Python was told."""
