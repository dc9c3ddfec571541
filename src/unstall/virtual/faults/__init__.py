"""Finds the faults in the shim's log: which device-side assertions failed, and when Python got their errors."""
