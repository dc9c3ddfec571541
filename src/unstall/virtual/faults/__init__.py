"""Finds device faults in a log: which device-side assertions failed, and when Python got their errors."""
