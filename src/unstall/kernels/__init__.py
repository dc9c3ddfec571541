"""Inspects kernels written in Numba: their accesses of memory, races and barriers, and a model of their time."""
